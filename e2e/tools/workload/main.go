// Clients of an etcd cluster that remember what they were told: writers, a chain of compare-and-swaps, one that connects
// anew for every call, and a watcher from the first revision on. What each of them saw goes to standard output, a line of JSON at a time; nothing is judged
// here. They go on until standard input ends, and then read what there is.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// What is below it belongs to one run of this program.
var prefix, chain string

const (
	// A call without an answer for so long is given up, and nobody knows whether it was done.
	patience = 2 * time.Second
	// How long the cluster may take to answer at last when everything is over.
	final = 2 * time.Minute
	page  = 1000
)

// Event is one line of the history. Moments are nanoseconds since the start of this program.
type Event struct {
	Kind     string `json:"kind"`
	Client   string `json:"client,omitempty"`
	Key      string `json:"key,omitempty"`
	Value    string `json:"value,omitempty"`
	Previous string `json:"previous,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Began    int64  `json:"began,omitempty"`
	Ended    int64  `json:"ended,omitempty"`
	Error    string `json:"error,omitempty"`
}

type history struct {
	mutex sync.Mutex
	out   *bufio.Writer
	start time.Time
	// The last revision the watcher was told of.
	seen atomic.Int64
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) add(event Event) {
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.out.Write(line)
	h.out.WriteByte('\n')
	// A reader that follows along sees each line when it is written.
	h.out.Flush()
}

func connect(endpoints []string) *clientv3.Client { return connectFor(endpoints, 0) }

// With this many attempts for each call; with 0 as many as etcd's client makes by itself.
func connectFor(endpoints []string, attempts uint) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          patience,
		DialKeepAliveTime:    patience,
		DialKeepAliveTimeout: patience,
		MaxUnaryRetries:      attempts,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return client
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Each write has a key of its own, so that whatever became of it can be seen in the end. Calls go to one address after the
// other, so the call after one without an answer goes elsewhere.
func write(ctx context.Context, h *history, endpoints []string, name string, pause, limit time.Duration) {
	client := connect(endpoints)
	defer client.Close()
	for number := 0; ctx.Err() == nil; number++ {
		key := fmt.Sprintf("%s%s/%08d", prefix, name, number)
		event := Event{Kind: "put", Client: name, Key: key, Value: key, Began: h.now()}
		call, cancel := context.WithTimeout(context.Background(), limit)
		answer, err := client.Put(call, key, key)
		cancel()
		event.Ended = h.now()
		if err != nil {
			event.Kind, event.Error = "unknown", words(err)
		} else {
			event.Revision = answer.Header.Revision
		}
		h.add(event)
		sleep(ctx, pause)
	}
}

// Reads the number at the end of the chain and replaces it by the next one, if it is still there.
func swap(ctx context.Context, h *history, endpoints []string, name string, pause time.Duration) {
	client := connect(endpoints)
	defer client.Close()
	for ctx.Err() == nil {
		sleep(ctx, pause)
		read := Event{Kind: "read", Client: name, Key: chain, Began: h.now()}
		call, cancel := context.WithTimeout(context.Background(), patience)
		answer, err := client.Get(call, chain)
		cancel()
		read.Ended = h.now()
		if err != nil {
			read.Kind, read.Error = "unread", words(err)
			h.add(read)
			continue
		}
		version := int64(0)
		read.Value = "0"
		if len(answer.Kvs) > 0 {
			read.Value, version = string(answer.Kvs[0].Value), answer.Kvs[0].ModRevision
		}
		read.Revision = answer.Header.Revision
		h.add(read)
		number, err := strconv.Atoi(strings.SplitN(read.Value, " ", 2)[0])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		// The name keeps two clients' next numbers apart.
		next := fmt.Sprintf("%d %s", number+1, name)
		event := Event{Kind: "swap", Client: name, Key: chain, Previous: read.Value, Value: next, Began: h.now()}
		call, cancel = context.WithTimeout(context.Background(), patience)
		done, err := client.Txn(call).
			If(clientv3.Compare(clientv3.ModRevision(chain), "=", version)).
			Then(clientv3.OpPut(chain, next)).Commit()
		cancel()
		event.Ended = h.now()
		switch {
		case err != nil:
			event.Kind, event.Error = "unknown", words(err)
		case !done.Succeeded:
			event.Kind = "lost"
		default:
			event.Revision = done.Header.Revision
		}
		h.add(event)
	}
}

// Comes anew for every call, as a client that has just started: it is the one that finds out whom the address leads to,
// as it asks once only and tells what it hears.
func knock(ctx context.Context, h *history, endpoints []string, name string, pause time.Duration) {
	for ctx.Err() == nil {
		client := connectFor(endpoints, 1)
		event := Event{Kind: "read", Client: name, Key: chain, Value: "0", Began: h.now()}
		call, cancel := context.WithTimeout(context.Background(), patience)
		answer, err := client.Get(call, chain)
		cancel()
		client.Close()
		event.Ended = h.now()
		switch {
		case err != nil:
			event.Kind, event.Value, event.Error = "unread", "", words(err)
		case len(answer.Kvs) > 0:
			event.Value = string(answer.Kvs[0].Value)
			event.Revision = answer.Header.Revision
		default:
			event.Revision = answer.Header.Revision
		}
		h.add(event)
		sleep(ctx, pause)
	}
}

// Everything from the first revision on, in the order in which it is told.
func watch(ctx context.Context, h *history, endpoints []string) {
	client := connect(endpoints)
	defer client.Close()
	next := int64(1)
	for ctx.Err() == nil {
		within, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for answer := range client.Watch(within, prefix, clientv3.WithPrefix(), clientv3.WithRev(next)) {
			if answer.CompactRevision > 0 {
				h.add(Event{Kind: "compacted", Revision: answer.CompactRevision})
				next = answer.CompactRevision
			}
			if answer.Err() != nil {
				break
			}
			for _, event := range answer.Events {
				kind := "seen"
				if event.Type == clientv3.EventTypeDelete {
					kind = "seen-deleted"
				}
				h.add(Event{
					Kind: kind, Key: string(event.Kv.Key), Value: string(event.Kv.Value),
					Revision: event.Kv.ModRevision, Ended: h.now(),
				})
				next = event.Kv.ModRevision + 1
				h.seen.Store(event.Kv.ModRevision)
			}
		}
		cancel()
		sleep(ctx, 100*time.Millisecond)
	}
}

// The watcher is told of everything in the end, or never will be.
func catchUp(h *history, newest int64) {
	for deadline := time.Now().Add(final); h.seen.Load() < newest; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.add(Event{Kind: "behind", Revision: h.seen.Load(), Error: fmt.Sprintf("never told of %d", newest)})
			return
		}
	}
}

// What is there when everything is over.
func read(h *history, endpoints []string) error {
	client := connect(endpoints)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), final)
	defer cancel()
	from, revision, newest := prefix, int64(0), int64(0)
	for {
		options := []clientv3.OpOption{
			clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)),
			clientv3.WithLimit(page),
			clientv3.WithRev(revision),
		}
		call, stop := context.WithTimeout(ctx, 2*patience)
		answer, err := client.Get(call, from, options...)
		stop()
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("nobody could tell in the end what there is: %w", err)
			}
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		if revision == 0 {
			revision = answer.Header.Revision
		}
		for _, kv := range answer.Kvs {
			newest = max(newest, kv.ModRevision)
			h.add(Event{Kind: "there", Key: string(kv.Key), Value: string(kv.Value), Revision: kv.ModRevision})
		}
		if !answer.More {
			catchUp(h, newest)
			h.add(Event{Kind: "end", Revision: revision})
			return nil
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

func main() {
	endpoints := flag.String("endpoints", "", "addresses of the cluster, with commas between them")
	writers := flag.Int("writers", 4, "how many clients write")
	chains := flag.Int("chains", 2, "how many clients extend one chain of compare-and-swaps")
	newcomers := flag.Int("newcomers", 1, "how many clients connect anew for every call")
	pause := flag.Duration("pause", 20*time.Millisecond, "how long a client rests after each call")
	limit := flag.Duration("limit", patience, "how long a write waits for its answer")
	late := flag.Bool("watch-late", false, "watch when all else is over: a member that stops waits for open watches")
	flag.StringVar(&prefix, "prefix", "w/", "what all keys begin with, which no other run may use")
	size := flag.Int64("fill", 0, "write so many bytes of values instead, and end")
	flag.Parse()
	chain = prefix + "chain"
	all := strings.Split(*endpoints, ",")
	if *size > 0 {
		if err := fill(all, *size); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	h := &history{out: bufio.NewWriter(os.Stdout), start: time.Now()}
	ctx, stop := context.WithCancel(context.Background())
	watching, unwatch := context.WithCancel(context.Background())
	var clients, watcher sync.WaitGroup
	for number := range *writers {
		clients.Add(1)
		go func() {
			defer clients.Done()
			write(ctx, h, all, strconv.Itoa(number), *pause, *limit)
		}()
	}
	for number := range *chains {
		clients.Add(1)
		go func() {
			defer clients.Done()
			swap(ctx, h, all, "c"+strconv.Itoa(number), *pause)
		}()
	}
	for range *newcomers {
		clients.Add(1)
		go func() {
			defer clients.Done()
			knock(ctx, h, all, "newcomer", *pause)
		}()
	}
	beginToWatch := func() {
		watcher.Add(1)
		go func() {
			defer watcher.Done()
			watch(watching, h, all)
		}()
	}
	if !*late {
		beginToWatch()
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	stop()
	clients.Wait()
	if *late {
		beginToWatch()
	}
	err := read(h, all)
	unwatch()
	watcher.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
