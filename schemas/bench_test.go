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

// BenchmarkDecode compares what a consumer pays for an event, walked, upcast, checked and in a Go struct, with what goavro alone
// takes to turn the composed record into maps, where nothing is checked: the ratio is how many times as fast it is. What a long
// text costs here beside its copy is that it is shown to be UTF-8, which is dear where it is not all ASCII.
func BenchmarkDecode(b *testing.B) {
	codec, err := goavro.NewCodecWithOptions(released[event.ToolCallCompletedType].versions[0].composed, &goavro.CodecOption{EnableStringNull: false})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		size       int
		name, text string
	}{{300, "ascii", ascii}, {2 << 10, "ascii", ascii}, {2 << 10, "umlauts", umlauts}, {32 << 10, "ascii", ascii}, {32 << 10, "umlauts", umlauts}} {
		record := completedOf(b, c.size, c.text)
		b.Run(fmt.Sprintf("%dB/%s", c.size, c.name), func(b *testing.B) {
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
	record := completedOf(b, 300, ascii)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := DecodeEnvelope(record); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, size := range []int{300, 2 << 10, 32 << 10} {
		e, err := DecodeEvent(event.ToolCallCompletedType, 1, completedOf(b, size, ascii))
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
		s, err := DecodeRecord(event.ToolCallCompletedType, 1, completedOf(b, size, ascii))
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

const (
	ascii   = `Foxes in the snow, {"id": 4711, "pages": [1, 2]}. `
	umlauts = `Füchse im Schnee, {"id": 4711, "pages": [1, 2]}.  `
)

// completedOf is the record of a completed call of about that size, with that text over and over.
func completedOf(b *testing.B, size int, text string) []byte {
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
	repeats := max(size-len(empty), 0)/len(text) + 1
	payload.ResultItem.Item.Content = []event.Part{event.Text{Text: strings.Repeat(text, repeats)}}
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
