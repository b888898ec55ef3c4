package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func signals() context.Context {
	context, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	return context
}

func pause([]string) (any, error) {
	<-signals().Done()
	return struct{}{}, nil
}

func serve(arguments []string) (any, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		fmt.Fprintln(response, host)
	})
	routes.HandleFunc("/bytes/{count}", func(response http.ResponseWriter, request *http.Request) {
		count, err := strconv.ParseInt(request.PathValue("count"), 10, 64)
		if err != nil || count < 0 {
			http.Error(response, "not a number of bytes", http.StatusBadRequest)
			return
		}
		response.Header().Set("Content-Length", strconv.FormatInt(count, 10))
		io.CopyN(response, zeros{}, count)
	})
	server := &http.Server{Addr: arguments[0], Handler: routes, ReadHeaderTimeout: patience}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return nil, err
	case <-signals().Done():
		return struct{}{}, server.Close()
	}
}

type fetched struct {
	Status  int     `json:"status"`
	Body    string  `json:"body"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// longest body that is repeated in the answer.
const shown = 4096

func get(arguments []string) (any, error) {
	// A slow body is a measurement; silence before it is a failure.
	client := http.Client{Transport: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: patience}).DialContext,
		ResponseHeaderTimeout: patience,
	}}
	start := time.Now()
	response, err := client.Get(arguments[0])
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	head, err := io.ReadAll(io.LimitReader(response.Body, shown))
	if err != nil {
		return nil, err
	}
	rest, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return nil, err
	}
	count := int64(len(head)) + rest
	if rest > 0 {
		head = nil
	}
	return fetched{response.StatusCode, string(head), count, time.Since(start).Seconds()}, nil
}

type took struct {
	Seconds float64 `json:"seconds"`
}

func connect(arguments []string) (any, error) {
	start := time.Now()
	connection, err := net.DialTimeout("tcp", arguments[0], patience)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return took{time.Since(start).Seconds()}, nil
}

type resolved struct {
	Addresses []string `json:"addresses"`
	Seconds   float64  `json:"seconds"`
}

func lookup(arguments []string) (any, error) {
	context, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	start := time.Now()
	addresses, err := net.DefaultResolver.LookupHost(context, arguments[0])
	if err != nil {
		return nil, err
	}
	return resolved{addresses, time.Since(start).Seconds()}, nil
}

// zeros is a file without an end.
type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}
