package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// onEach runs a test against a registry in memory and, where TOOLTAPE_TEST_REGISTRY_URL names one, against a real one, each time on
// a topic of its own.
func onEach(t *testing.T, test func(t *testing.T, r *Registry)) {
	topic := fmt.Sprintf("test-%d.events", time.Now().UnixNano())
	t.Run("in memory", func(t *testing.T) {
		fake := srfake.New()
		t.Cleanup(fake.Close)
		test(t, New(client(t, fake.URL()), topic))
	})
	t.Run("real", func(t *testing.T) {
		url := os.Getenv("TOOLTAPE_TEST_REGISTRY_URL")
		if url == "" {
			t.Skip("TOOLTAPE_TEST_REGISTRY_URL names no registry")
		}
		test(t, New(client(t, url), topic))
	})
}

func client(t *testing.T, url string) *sr.Client {
	t.Helper()
	c, err := sr.NewClient(sr.URLs(url))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func register(t *testing.T, r *Registry) schemas.IDs {
	t.Helper()
	ids, err := r.Register(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestRegisteringAgainGivesTheSameIDs(t *testing.T) {
	onEach(t, func(t *testing.T, r *Registry) {
		first := register(t, r)
		if again := register(t, r); !maps.Equal(first, again) {
			t.Errorf("got %v, then %v", first, again)
		}
		seen := map[uint32]string{}
		for name, id := range first {
			if other, ok := seen[id]; ok {
				t.Errorf("%s and %s have one id", name, other)
			}
			seen[id] = name
		}
	})
}

func TestWhatIsWrittenWithTheRegistrysIDsIsReadWithItsSchemas(t *testing.T) {
	onEach(t, func(t *testing.T, r *Registry) {
		encoder, err := schemas.NewRegistryEncoder(register(t, r))
		if err != nil {
			t.Fatal(err)
		}
		stored, err := schemas.StoredOf(runFailed())
		if err != nil {
			t.Fatal(err)
		}
		value, err := encoder.Encode(nil, stored)
		if err != nil {
			t.Fatal(err)
		}
		e, err := schemas.NewDecoder(r.Lookup).Decode(t.Context(), value)
		if err != nil || e.Payload != runFailed().Payload {
			t.Errorf("got %+v, %v", e, err)
		}
	})
}

func TestEverySchemaComesBackAsTheFrozenOne(t *testing.T) {
	onEach(t, func(t *testing.T, r *Registry) {
		for name, id := range register(t, r) {
			text, err := r.Lookup(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if of, version, err := schemas.Identify(text); err != nil || schemas.FullName(of, version) != name {
				t.Errorf("%s comes back as %s version %d, %v", name, of, version, err)
			}
		}
	})
}

func TestAnIDThatTheRegistryDoesNotKnow(t *testing.T) {
	onEach(t, func(t *testing.T, r *Registry) {
		register(t, r)
		if _, err := r.Lookup(t.Context(), 1<<30); !errors.Is(err, schemas.ErrUnknownID) {
			t.Errorf("got %v", err)
		}
	})
}

func TestCheckSaysWhatDiffers(t *testing.T) {
	onEach(t, func(t *testing.T, r *Registry) {
		differences, err := r.Check(t.Context())
		if err != nil || len(differences) < len(schemas.Types()) {
			t.Errorf("before anything is registered: got %q, %v", differences, err)
		}
		register(t, r)
		if differences, err := r.Check(t.Context()); err != nil || len(differences) > 0 {
			t.Errorf("after all is registered: got %q, %v", differences, err)
		}
	})
	onEach(t, func(t *testing.T, r *Registry) {
		foreign := sr.Schema{Schema: `{"type":"record","name":"V1","namespace":"tooltape.run.failed","fields":[]}`, Type: sr.TypeAvro}
		if _, err := r.client.CreateSchema(t.Context(), r.Subject("tooltape.run.failed.V1"), foreign); err != nil {
			t.Fatal(err)
		}
		differences, err := r.Check(t.Context())
		if err != nil || !strings.Contains(strings.Join(differences, "\n"), "version 1 of the subject "+r.Subject("tooltape.run.failed.V1")) {
			t.Errorf("with another's schema: got %q, %v", differences, err)
		}
	})
}

func TestOnlyTheRegistrysOwnAnswerMakesAnIDUnknown(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"a wrong path":            http.NotFound,
		"a wrong path, in JSON":   answer(404, `{"error_code":404,"message":"HTTP 404 Not Found"}`),
		"the registry is ill":     answer(500, `{"error_code":50001,"message":"Error in the backend data store"}`),
		"the registry wants auth": answer(401, `{"error_code":401,"message":"Unauthorized"}`),
		"no JSON":                 answer(200, `<html>`),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(serve)
			defer server.Close()
			r := New(client(t, server.URL), "tooltape.events")
			if _, err := r.Lookup(t.Context(), 1); err == nil || errors.Is(err, schemas.ErrUnknownID) {
				t.Errorf("got %v", err)
			}
			if _, err := r.Check(t.Context()); err == nil {
				t.Error("the check has a result")
			}
			if _, err := r.Register(t.Context()); err == nil {
				t.Error("registered")
			}
		})
	}
	t.Run("nobody is there", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := New(client(t, "http://127.0.0.1:1"), "tooltape.events").Lookup(ctx, 1); err == nil || errors.Is(err, schemas.ErrUnknownID) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnErrorSaysWhoAnsweredWhatAndNoPassword(t *testing.T) {
	for body, says := range map[string]string{
		`{}`:                                  "no reason given",
		"<html>" + strings.Repeat("x", 1<<20): "no reason given",
		`{"error_code":40101,"message":"go"}`: "go",
		`{"message":"` + strings.Repeat("é", 1<<20) + `"}`: "…",
	} {
		server := httptest.NewServer(answer(http.StatusUnauthorized, body))
		r := New(client(t, strings.Replace(server.URL, "http://", "http://me:hunter2@", 1)), "tooltape.events")
		_, looked := r.Lookup(t.Context(), 1)
		_, checked := r.Check(t.Context())
		_, registered := r.Register(t.Context())
		for _, err := range []error{looked, checked, registered} {
			if err == nil || !strings.Contains(err.Error(), server.URL+"/") || !strings.Contains(err.Error(), "401 Unauthorized") ||
				!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 1000 {
				t.Errorf("got %v", err)
			}
		}
		server.Close()
	}
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}
}

func runFailed() event.Event {
	return event.Event{
		Envelope: event.Envelope{
			EnvelopeVersion: 1, EventID: "01890a5d-ac96-774b-bcce-b302099a8057", TenantID: event.DefaultTenant, SessionID: "s1",
			RunID: event.Some("r1"), Seq: 1, Type: event.RunFailedType, PayloadVersion: 1, ActorType: "runtime", PartitionKey: "s1",
		},
		Payload: event.RunFailed{Reason: "crashed"},
	}
}
