package main

import (
	"path/filepath"
	"strings"
)

// demoTour is what to type next.
func demoTour(dir string) string {
	return strings.ReplaceAll(`
The demo's sessions are generated. In another terminal, from this folder:

  set -a; . DIR; set +a                         the settings of this Kafka and PostgreSQL

  tooltape history demo-denied-v1                             a denial as version 1 recorded it, without its item; the session goes on
  tooltape cat --session demo-denied-v1                       the same, as it is stored
  tooltape history demo-refused                               a refusal, which always recorded its item
  tooltape history demo-approval --format anthropic           a denied approval, and the next message
  tooltape history demo-parallel --format openai-chat         three calls at once, of which one fails
  tooltape parked                                             nothing waits

(go run ./cmd/tooltape in place of tooltape, where it is not installed.)

`, "DIR", shellQuoted(filepath.Join(dir, "env")))
}

// shellQuoted is a word as a shell reads it.
func shellQuoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./", r)
	}
	if !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
