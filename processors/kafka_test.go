package processors_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

func setPolicy(t *testing.T, admin *kadm.Client, topic, policy string) {
	t.Helper()
	rs, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}}, topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}
