// Package registry keeps the frozen schemas in a schema registry with Confluent's API, so that any Avro consumer in any language
// reads the topic.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/tooltape/tooltape/schemas"
)

// Registry is the schemas of one events topic in a schema registry. It is safe for concurrent use.
type Registry struct {
	client *sr.Client
	topic  string
}

// New names the registry's client and the events topic that the subjects are for.
func New(client *sr.Client, eventsTopic string) *Registry { return &Registry{client, eventsTopic} }

// Subject is where a frozen schema is registered: <topic>-<full name>, TopicRecordNameStrategy. A payload version is a record of its
// own and so has a subject of its own: no compatibility rule stands in the way of the next version.
func (r *Registry) Subject(fullName string) string { return r.topic + "-" + fullName }

// Register registers every frozen schema and returns the ids, for schemas.NewRegistryEncoder. What is registered already keeps its
// id. On an error some may be registered and others not; again is harmless.
func (r *Registry) Register(ctx context.Context) (schemas.IDs, error) {
	ids := schemas.IDs{}
	err := eachFrozen(func(name, text string) error {
		id, err := r.client.RegisterSchema(ctx, r.Subject(name), sr.Schema{Schema: text, Type: sr.TypeAvro}, -1, -1)
		if err != nil {
			return fmt.Errorf("register the schema %s: %w", name, told(err))
		}
		ids[name] = uint32(id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// Lookup is the text of the schema with this id, for schemas.NewDecoder; schemas.ErrUnknownID if the registry answers that it has
// none. That a path is not found is no such answer: a wrong address must not park the world.
func (r *Registry) Lookup(ctx context.Context, id uint32) (string, error) {
	schema, err := r.client.SchemaByID(ctx, int(id))
	if isNotFound(err) {
		return "", schemas.ErrUnknownID
	}
	return schema.Schema, told(err)
}

// Check compares the registry with the frozen list and returns what differs, a sentence each. It changes nothing. The error says
// that the registry gave no answer.
func (r *Registry) Check(ctx context.Context) (differences []string, err error) {
	err = eachFrozen(func(name, _ string) error {
		registered, err := r.client.Schemas(ctx, r.Subject(name))
		switch {
		case isNotFound(err):
			differences = append(differences, "the subject "+r.Subject(name)+" is not registered")
			return nil
		case err != nil:
			return fmt.Errorf("read the subject %s: %w", r.Subject(name), told(err))
		}
		for _, version := range registered {
			if t, v, err := schemas.Identify(version.Schema.Schema); err != nil || schemas.FullName(t, v) != name {
				differences = append(differences, fmt.Sprintf("version %d of the subject %s is not the frozen schema of that name",
					version.Version, r.Subject(name)))
			}
		}
		return nil
	})
	return differences, err
}

func eachFrozen(do func(fullName, text string) error) error {
	for _, t := range schemas.Types() {
		for v := 1; v <= schemas.Latest(t); v++ {
			text, _ := schemas.Schema(t, v)
			if err := do(schemas.FullName(t, v), text); err != nil {
				return err
			}
		}
	}
	return nil
}

// isNotFound tells the registry's own answer (404 and a code such as 40403) from that of whatever else serves the address.
func isNotFound(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound && answer.ErrorCode/100 == http.StatusNotFound
}

// told is an error that says who refused what; the client's own says what was in the answer, which may be nothing, or a whole page.
func told(err error) error {
	answer, ok := errors.AsType[*sr.ResponseError](err)
	if !ok {
		return err
	}
	at := "the registry"
	if u, err := url.Parse(answer.URL); err == nil {
		u.User = nil // it may hold a password
		at = u.String()
	}
	const longest = 300
	says := answer.Message
	if len(says) > longest {
		says = strings.ToValidUTF8(says[:longest], "") + "…"
	}
	return fmt.Errorf("%s %s: answered with status %d %s: %s", answer.Method, at, answer.StatusCode, http.StatusText(answer.StatusCode),
		cmp.Or(says, "no reason given"))
}
