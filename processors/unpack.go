package processors

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// unpackedAtOnce bounds what one poll's fetches unpack to. A fetch is bounded by what it weighs; text that repeats itself can weigh a
// thousandth of what it unpacks to.
const unpackedAtOnce = 32 << 20

// errUnpackedEnough puts a batch off until what was unpacked before it is projected. The client takes it for the cut-off end of a fetch and
// fetches it again, or reports it where nothing of its partition came before it.
var errUnpackedEnough = errors.New("enough is unpacked for now")

// unpacker is the client's own decompressor, but that it stops when enough is unpacked.
type unpacker struct {
	kgo.Decompressor
	unpacked atomic.Int64
}

// newUnpacker refuses batches that unpack to more than maxBatch bytes.
func newUnpacker(maxBatch int) (*unpacker, error) {
	// Of the default decompressors only a client's own is bounded.
	client, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(maxBatch))
	if err != nil {
		return nil, fmt.Errorf("configuring the Kafka client: %w", err)
	}
	defer client.Close()
	inner, ok := client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return nil, errors.New("the Kafka client has no decompressor")
	}
	return &unpacker{Decompressor: inner}, nil
}

// Decompress implements kgo.Decompressor.
func (u *unpacker) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if u.unpacked.Load() >= unpackedAtOnce {
		return nil, errUnpackedEnough
	}
	out, err := u.Decompressor.Decompress(src, codec)
	u.unpacked.Add(int64(len(out)))
	return out, err
}

// begin makes room for the next fetches: what was unpacked is in the loop's hands.
func (u *unpacker) begin() { u.unpacked.Store(0) }
