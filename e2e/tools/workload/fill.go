package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// What one transaction writes stays below what etcd takes.
	perCall   = 64
	valueSize = 16 << 10
	fillers   = 4
	// A large database has pauses of its own.
	fillPatience = 30 * time.Second
)

// fill writes keys until there are so many bytes of values, the same ones every time. Half of each value is noise, so
// that it can be compressed, but not to nothing.
func fill(endpoints []string, size int64) error {
	calls := (size + perCall*valueSize - 1) / (perCall * valueSize)
	var next atomic.Int64
	var clients sync.WaitGroup
	failed := make(chan error, fillers)
	for range fillers {
		clients.Add(1)
		go func() {
			defer clients.Done()
			client := connect(endpoints)
			defer client.Close()
			for number := next.Add(1); number <= calls; number = next.Add(1) {
				ctx, cancel := context.WithTimeout(context.Background(), fillPatience)
				_, err := client.Txn(ctx).Then(batch(number)...).Commit()
				cancel()
				if err != nil {
					failed <- fmt.Errorf("call %d of %d: %w", number, calls, err)
					return
				}
			}
		}()
	}
	clients.Wait()
	close(failed)
	return <-failed
}

func batch(number int64) []clientv3.Op {
	var seed [32]byte
	copy(seed[:], strconv.FormatInt(number, 10))
	noise := rand.NewChaCha8(seed)
	operations := make([]clientv3.Op, 0, perCall)
	for place := range perCall {
		value := make([]byte, valueSize)
		noise.Read(value[:valueSize/2])
		operations = append(operations, clientv3.OpPut(fmt.Sprintf("f/%08d/%02d", number, place), string(value)))
	}
	return operations
}
