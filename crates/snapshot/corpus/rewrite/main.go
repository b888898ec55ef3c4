// Command rewrite copies a database into one with another size of pages, or with its list of free pages in the file,
// and appends the hash that etcd appends: rewrite FROM TO PAGESIZE SYNC
package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strconv"

	"go.etcd.io/bbolt"
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	from, to := os.Args[1], os.Args[2]
	size, sync := must(strconv.Atoi(os.Args[3])), must(strconv.ParseBool(os.Args[4]))
	file := filepath.Join(must(os.MkdirTemp("", "")), "db")
	source := must(bbolt.Open(from, 0o400, &bbolt.Options{ReadOnly: true}))
	target := must(bbolt.Open(file, 0o600, &bbolt.Options{PageSize: size, NoFreelistSync: !sync}))
	check(source.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			// One transaction a key, so that pages are freed.
			check(target.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(name); return err }))
			return bucket.ForEach(func(key, value []byte) error {
				return target.Update(func(tx *bbolt.Tx) error { return tx.Bucket(name).Put(key, value) })
			})
		})
	}))
	var out bytes.Buffer
	check(target.View(func(tx *bbolt.Tx) error { _, err := tx.WriteTo(&out); return err }))
	hash := sha256.Sum256(out.Bytes())
	check(os.WriteFile(to, append(out.Bytes(), hash[:]...), 0o600))
}
