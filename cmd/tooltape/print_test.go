package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWhatOtherProgramsSayMovesNoCursor(t *testing.T) {
	const said = "a\x1b[2J\x07\x7f\u009bb\u202e\u2066\u200b\u2028\ufeff\nc\xff"
	const shown = "a\ufffd[2J\ufffd\ufffd\ufffdb\ufffd\ufffd\ufffd\ufffd\ufffd\nc\ufffd"
	var errs strings.Builder
	a := &app{errs: &errs}
	a.report(errors.New(said), false)
	if want := "tooltape: " + shown + "\n"; errs.String() != want {
		t.Errorf("reported is %q, want %q", errs.String(), want)
	}
	if got, want := cell(reflect.ValueOf(said)), strings.ReplaceAll(shown, "\n", "\ufffd"); got != want {
		t.Errorf("in a table it is %q, want %q", got, want)
	}
	tel, err := newTelemetry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addr, err := tel.serve(t.Context(), "127.0.0.1:0", func() error { return errors.New(said) })
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, addr, "/readyz"); got != shown+"\n" {
		t.Errorf("/readyz answers %q, want %q", got, shown)
	}
}

// get is what answers at a path.
func get(t *testing.T, addr net.Addr, path string) string {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(fmt.Sprintf("http://%s%s", addr, path))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestARegistrysAnswerIsReadToABound(t *testing.T) {
	chunk := make([]byte, 1<<20)
	sent := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for sent = 0; sent < 10*maxAnswer; sent += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	c := bare(t)
	c.failed(c.run("schemas", "check", "--registry-url", server.URL), exitFailed, "the answer has more than")
	server.Close() // waits for the handler
	if sent >= 10*maxAnswer {
		t.Error("the whole answer was taken")
	}
}

func TestARegistryWithALoginIsAskedWithIt(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != secret {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()
	c := bare(t)
	c.failed(c.run("schemas", "check", "--registry-url", strings.Replace(server.URL, "://", "://me:"+secret+"@", 1)), exitFailed, server.URL, "401 Unauthorized")
}
