package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// fault is what meddle does to requests; the zero value is none.
type fault struct {
	// Status answers every request with this, in the words of an object store.
	Status int
	// Down closes every connection without a word.
	Down bool
	// Slow lets this many bytes of a body through in a second.
	Slow int64
	// Break ends a connection after this many bytes of a body.
	Break int64
	// Flip changes the bit of lowest value of this byte of a body, counted from 1.
	Flip int64
	// Rot does the same to what the server answers alone, as if it had changed where it is kept.
	Rot int64
}

// bites counts what a fault did, so that a scenario can tell that it did something.
type bites struct {
	Passed   int64 `json:"passed"`
	Answered int64 `json:"answered"`
	Closed   int64 `json:"closed"`
	Slowed   int64 `json:"slowed"`
	Broken   int64 `json:"broken"`
	Flipped  int64 `json:"flipped"`
}

type meddler struct {
	lock  sync.Mutex
	fault fault
	bites bites
}

func (m *meddler) now() fault {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.fault
}

func (m *meddler) count(change func(*bites)) {
	m.lock.Lock()
	defer m.lock.Unlock()
	change(&m.bites)
}

// control sets the fault from the query, all of it at once, and answers with the counts.
func (m *meddler) control(response http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	if request.URL.Path == "/set" {
		number := func(name string) int64 {
			value, _ := strconv.ParseInt(query.Get(name), 10, 64)
			return value
		}
		wanted := fault{int(number("status")), number("down") != 0, number("slow"), number("break"), number("flip"), number("rot")}
		m.lock.Lock()
		m.fault = wanted
		m.lock.Unlock()
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	json.NewEncoder(response).Encode(m.bites)
}

var errBroken = errors.New("broken on purpose")

// body is a body with the fault in it.
type body struct {
	io.ReadCloser
	meddler *meddler
	fault   fault
	read    int64
}

func (b *body) Read(into []byte) (int, error) {
	if b.fault.Slow > 0 {
		// A tenth of a second at a time.
		into = into[:min(int64(len(into)), max(b.fault.Slow/10, 1))]
		time.Sleep(100 * time.Millisecond)
		b.meddler.count(func(bites *bites) { bites.Slowed++ })
	}
	if b.fault.Break > 0 {
		left := b.fault.Break - b.read
		if left <= 0 {
			b.meddler.count(func(bites *bites) { bites.Broken++ })
			return 0, errBroken
		}
		into = into[:min(int64(len(into)), left)]
	}
	count, err := b.ReadCloser.Read(into)
	if place := b.fault.Flip - b.read; b.fault.Flip > 0 && place > 0 && place <= int64(count) {
		into[place-1] ^= 1
		b.meddler.count(func(bites *bites) { bites.Flipped++ })
	}
	b.read += int64(count)
	return count, err
}

func (m *meddler) serve(target *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{
		// The host is part of what object stores sign, so it stays as the client wrote it.
		Rewrite: func(request *httputil.ProxyRequest) {
			request.Out.URL.Scheme, request.Out.URL.Host = target.Scheme, target.Host
		},
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			fault := m.now()
			fault.Flip = max(fault.Flip, fault.Rot)
			response.Body = &body{response.Body, m, fault, 0}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		fault := m.now()
		switch {
		case fault.Down:
			m.count(func(bites *bites) { bites.Closed++ })
			panic(http.ErrAbortHandler)
		case fault.Status != 0:
			m.count(func(bites *bites) { bites.Answered++ })
			response.Header().Set("Content-Type", "application/xml")
			response.WriteHeader(fault.Status)
			code := "InternalError"
			if fault.Status == http.StatusServiceUnavailable {
				code = "SlowDown"
			}
			fmt.Fprintf(response, "<Error><Code>%s</Code><Message>on purpose</Message></Error>", code)
		default:
			m.count(func(bites *bites) { bites.Passed++ })
			if request.Body != nil && request.Body != http.NoBody {
				request.Body = &body{request.Body, m, fault, 0}
			}
			proxy.ServeHTTP(response, request)
		}
	})
}

// meddle stands between clients and a server and does to them what it is told to.
func meddle(arguments []string) (any, error) {
	target, err := url.Parse(arguments[1])
	if err != nil {
		return nil, err
	}
	m := &meddler{}
	quiet := log.New(io.Discard, "", 0)
	servers := []*http.Server{
		{Addr: arguments[0], Handler: m.serve(target), ErrorLog: quiet, ReadHeaderTimeout: patience},
		{Addr: arguments[2], Handler: http.HandlerFunc(m.control), ErrorLog: quiet, ReadHeaderTimeout: patience},
	}
	failed := make(chan error, len(servers))
	for _, server := range servers {
		go func() { failed <- server.ListenAndServe() }()
	}
	select {
	case err := <-failed:
		return nil, err
	case <-signals().Done():
		return struct{}{}, errors.Join(servers[0].Close(), servers[1].Close())
	}
}
