package schemas

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/linkedin/goavro/v2"

	"github.com/tooltape/tooltape/schemas/event"
)

// BenchmarkDecode compares what a consumer pays for an event with what goavro alone takes to turn the composed record into
// maps: the ratio is how many times as fast it is.
func BenchmarkDecode(b *testing.B) {
	codec, err := goavro.NewCodecWithOptions(released[event.ToolCallCompletedType].versions[0].composed, &goavro.CodecOption{EnableStringNull: false})
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{300, 2 << 10, 32 << 10} {
		record := completedOf(b, size)
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			b.ReportAllocs()
			start := cpuTime()
			for b.Loop() {
				if _, err := DecodeEvent(event.ToolCallCompletedType, 1, record); err != nil {
					b.Fatal(err)
				}
			}
			ours := cpuTime() - start
			start = cpuTime()
			for range b.N {
				if _, _, err := codec.NativeFromBinary(record); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(ours)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(cpuTime()-start)/float64(ours), "x-goavro")
		})
	}
}

func BenchmarkDecodeEnvelope(b *testing.B) {
	record := completedOf(b, 300)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := DecodeEnvelope(record); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, size := range []int{300, 2 << 10, 32 << 10} {
		e, err := DecodeEvent(event.ToolCallCompletedType, 1, completedOf(b, size))
		if err != nil {
			b.Fatal(err)
		}
		var record []byte
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := StoredOf(e)
				if err != nil {
					b.Fatal(err)
				}
				if record, err = s.AppendBinary(record[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseJSON(b *testing.B) {
	for _, size := range []int{300, 32 << 10} {
		s, err := DecodeRecord(event.ToolCallCompletedType, 1, completedOf(b, size))
		if err != nil {
			b.Fatal(err)
		}
		line := []byte(appendJSONOf(b, s))
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseJSON(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// cpuTime is what this process has used so far. It tells more than the clock on a machine that does other things too.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// completedOf is the record of a completed call of about that size, with text that is not all ASCII.
func completedOf(b *testing.B, size int) []byte {
	s := fixtureOf(b, "tool.call.completed.v1")
	e, err := s.Event()
	if err != nil {
		b.Fatal(err)
	}
	empty, err := s.AppendBinary(nil)
	if err != nil {
		b.Fatal(err)
	}
	payload := e.Payload.(event.ToolCallCompleted)
	text := strings.Repeat(`{"id": 4711, "title": "Füchse im Schnee"} `, size/42+1)
	payload.ResultItem.Item.Content = []event.Part{event.Text{Text: text[:max(size-len(empty), 1)]}}
	e.Payload = payload
	s, err = StoredOf(e)
	if err != nil {
		b.Fatal(err)
	}
	record, err := s.AppendBinary(nil)
	if err != nil {
		b.Fatal(err)
	}
	return record
}
