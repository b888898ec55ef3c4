// Command format converts a stored backup to a plain snapshot: format [KEY FILE] < OBJECT > SNAPSHOT
package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"github.com/klauspost/compress/zstd"
	"os"
)

func main() {
	object, _ := os.ReadFile("/dev/stdin")
	size := 65 + int(object[64]) + 16
	head, frame, last := sha256.Sum256(object[:size]), object[size:], false
	for unzip, _ := zstd.NewReader(nil); !last; {
		end := 16 + binary.BigEndian.Uint32(frame[12:])
		bound, payload, tag := append(head[:], frame[:16]...), frame[16:end], frame[end:end+16]
		sum, fault := sha256.Sum256(append(bound, payload...)), error(nil)
		if object[11] == 1 {
			master, _ := os.ReadFile(os.Args[1])
			key, _ := hkdf.Key(sha256.New, master, object[16:48], "etcd-operator frames 1 seal", 32)
			block, _ := aes.NewCipher(key)
			seal, _ := cipher.NewGCM(block)
			payload, fault = seal.Open(nil, append(make([]byte, 8), frame[:4]...), frame[16:end+16], bound)
		} else if string(sum[:16]) != string(tag) {
			fault = os.ErrInvalid
		}
		if frame[5] == 1 && fault == nil {
			payload, fault = unzip.DecodeAll(payload, nil)
		}
		if fault != nil {
			panic(fault)
		}
		os.Stdout.Write(payload)
		last, frame = frame[4] == 1, frame[end+16:]
	}
}
