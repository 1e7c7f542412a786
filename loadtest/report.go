package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
)

// report is all that a run found.
type report struct {
	Machine    string
	PostgreSQL string
	Fsync      bool
	Sizes      []sized
}

// sized is what was found for one size of events.
type sized struct {
	Size        int      `json:"size"`
	Events      int      `json:"events"`
	Sessions    int      `json:"sessions"`
	Rounds      int      `json:"rounds"`
	LogBytes    float64  `json:"log_bytes_per_event"` // as the broker keeps them, compressed; 0 where it does not say
	Ratio       float64  `json:"ratio"`
	RatioCPU    float64  `json:"ratio_cpu"` // the same by processor time, client's and server's: what others on the machine change least
	Floor       sample   `json:"floor"`
	Product     sample   `json:"product"`
	FloorRuns   []sample `json:"floor_rounds"`
	ProductRuns []sample `json:"product_rounds"`
}

// summarize takes the medians, of a side whose every round stored the same rows as the other's.
func summarize(l load, logBytes int64, results map[string][]sample) (sized, error) {
	f, p := results[floorName], results[productName]
	for _, s := range slices.Concat(f, p) {
		if s.checksum != f[0].checksum {
			return sized{}, fmt.Errorf("the sides did not store the same: the floor %s, the other %s", f[0].checksum, s.checksum)
		}
	}
	out := sized{
		Size: l.size, Events: l.events, Sessions: l.sessions, Rounds: len(f), LogBytes: float64(logBytes) / float64(l.events),
		Floor: median(f), Product: median(p), FloorRuns: f, ProductRuns: p,
	}
	out.Ratio = out.Product.RowsPerSecond / out.Floor.RowsPerSecond
	if used := out.Product.ClientMicros + out.Product.ServerMicros; used > 0 { // 0 where this machine does not tell
		out.RatioCPU = (out.Floor.ClientMicros + out.Floor.ServerMicros) / used
	}
	return out, nil
}

// median takes each figure's by itself; of memory, the peak of all rounds.
func median(samples []sample) sample {
	of := func(figure func(sample) float64) float64 {
		values := make([]float64, len(samples))
		for i, s := range samples {
			values[i] = figure(s)
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	m := sample{
		RowsPerSecond: of(func(s sample) float64 { return s.RowsPerSecond }),
		ClientMicros:  of(func(s sample) float64 { return s.ClientMicros }),
		ServerMicros:  of(func(s sample) float64 { return s.ServerMicros }),
	}
	for _, s := range samples {
		m.PeakMB = max(m.PeakMB, s.PeakMB)
	}
	return m
}

// label is a size as people write it: 300b, 2k.
func label(size int) string {
	if size >= 1024 && size%1024 == 0 {
		return strconv.Itoa(size/1024) + "k"
	}
	return strconv.Itoa(size) + "b"
}

func (r report) print(out io.Writer, format string) error {
	if format == "json" {
		return r.printJSON(out)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "event\tevents\tsessions\tin the log\t\trows/s\tclient µs/row\tserver µs/row\tpeak MB\tratio\tby CPU\t")
	for _, s := range r.Sizes {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.0f B\tfloor\t%.0f\t%.1f\t%.1f\t%.0f\t\t\t\n", label(s.Size), s.Events, s.Sessions, s.LogBytes,
			s.Floor.RowsPerSecond, s.Floor.ClientMicros, s.Floor.ServerMicros, s.Floor.PeakMB)
		fmt.Fprintf(w, "\t\t\t\tproduct\t%.0f\t%.1f\t%.1f\t%.0f\t%.2f\t%.2f\t\n",
			s.Product.RowsPerSecond, s.Product.ClientMicros, s.Product.ServerMicros, s.Product.PeakMB, s.Ratio, s.RatioCPU)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "medians of %d rounds each; %s; PostgreSQL %s, fsync %t\n", r.Sizes[0].Rounds, r.Machine, r.PostgreSQL, r.Fsync)
	return err
}

func (r report) printJSON(out io.Writer) error {
	all := map[string]any{"machine": r.Machine, "postgresql": r.PostgreSQL, "fsync": r.Fsync, "sizes": r.Sizes}
	var peak float64
	for _, s := range r.Sizes {
		all["ratio_"+label(s.Size)] = s.Ratio
		peak = max(peak, s.Product.PeakMB)
	}
	all["rss_mb"] = peak
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(all)
}

func machine() string {
	return fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// describeServer says what the figures depend on most: a server without fsync waits for no disk.
func describeServer(ctx context.Context, address string) (version string, fsync bool, err error) {
	db, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", false, err
	}
	defer db.Close(ctx)
	var on string
	err = db.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('fsync')`).Scan(&version, &on)
	return version, on == "on", err
}
