package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

type written struct {
	Bytes   int64   `json:"bytes"`
	Full    bool    `json:"full"`
	Seconds float64 `json:"seconds"`
}

func write(arguments []string) (any, error) {
	count, err := strconv.ParseInt(arguments[1], 10, 64)
	if err != nil || count < 0 {
		return nil, fmt.Errorf("not a number of bytes: %s", arguments[1])
	}
	file, err := os.OpenFile(arguments[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	start := time.Now()
	done, err := io.CopyN(file, zeros{}, count)
	if err == nil {
		err = file.Sync()
	}
	// A disk that is full is an answer, anything else a failure.
	full := isFull(err)
	if err != nil && !full {
		return nil, err
	}
	return written{done, full, time.Since(start).Seconds()}, nil
}

func isFull(err error) bool {
	path, is := err.(*os.PathError)
	return is && path.Err == syscall.ENOSPC
}

type synced struct {
	Times   int     `json:"times"`
	Median  float64 `json:"medianSeconds"`
	Slowest float64 `json:"slowestSeconds"`
}

func syncs(arguments []string) (any, error) {
	times, err := strconv.Atoi(arguments[1])
	if err != nil || times < 1 {
		return nil, fmt.Errorf("not a number of times: %s", arguments[1])
	}
	file, err := os.OpenFile(arguments[0], os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	block := make([]byte, 4096)
	var seconds []float64
	for range times {
		start := time.Now()
		if _, err := file.WriteAt(block, 0); err != nil {
			return nil, err
		}
		if err := file.Sync(); err != nil {
			return nil, err
		}
		seconds = append(seconds, time.Since(start).Seconds())
	}
	slices.Sort(seconds)
	return synced{times, seconds[times/2], seconds[times-1]}, nil
}

type content struct {
	Content string `json:"content"`
}

func read(arguments []string) (any, error) {
	bytes, err := os.ReadFile(arguments[0])
	if err != nil {
		return nil, err
	}
	return content{string(bytes)}, nil
}

type filesystem struct {
	Bytes     uint64 `json:"bytes"`
	Available uint64 `json:"availableBytes"`
}

func space(arguments []string) (any, error) {
	var found syscall.Statfs_t
	if err := syscall.Statfs(arguments[0], &found); err != nil {
		return nil, err
	}
	block := uint64(found.Bsize)
	return filesystem{found.Blocks * block, found.Bavail * block}, nil
}
