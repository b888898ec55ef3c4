package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// region is what a store is asked in; those of a test bed believe any.
const region = "us-east-1"

type stored struct {
	Status  int     `json:"status"`
	Bytes   int     `json:"bytes"`
	Sum     string  `json:"sum"`
	Body    string  `json:"body"`
	Seconds float64 `json:"seconds"`
}

// s3 sends one signed request to an object store; key and secret stand in the URL. What it sends is a pattern of so
// many bytes, and what it tells is a sum: of these if it sent any, else of what it got.
func s3(arguments []string) (any, error) {
	target, err := url.Parse(arguments[1])
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(arguments[2])
	if err != nil || count < 0 {
		return nil, fmt.Errorf("not a number of bytes: %s", arguments[2])
	}
	sent := make([]byte, count)
	for at := range sent {
		sent[at] = byte(at % 251)
	}
	key, secret := target.User.Username(), ""
	if word, has := target.User.Password(); has {
		secret = word
	}
	target.User = nil
	request, err := http.NewRequest(arguments[0], target.String(), bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	sign(request, sum(sent), key, secret, time.Now().UTC())
	client := http.Client{Timeout: 4 * patience}
	start := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	answer := stored{response.StatusCode, len(got), sum(got), "", time.Since(start).Seconds()}
	if count > 0 {
		answer.Bytes, answer.Sum = count, sum(sent)
	}
	if response.StatusCode >= 300 {
		answer.Body = string(got[:min(len(got), shown)])
	}
	return answer, nil
}

// sign is version 4 of the signatures that S3 wants, for requests without a query.
func sign(request *http.Request, content, key, secret string, now time.Time) {
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	request.Header.Set("X-Amz-Date", stamp)
	request.Header.Set("X-Amz-Content-Sha256", content)
	const signed = "host;x-amz-content-sha256;x-amz-date"
	canonical := strings.Join([]string{
		request.Method, request.URL.EscapedPath(), "",
		"host:" + request.URL.Host, "x-amz-content-sha256:" + content, "x-amz-date:" + stamp, "",
		signed, content,
	}, "\n")
	scope := strings.Join([]string{day, region, "s3", "aws4_request"}, "/")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, sum([]byte(canonical))}, "\n")
	by := []byte("AWS4" + secret)
	for _, part := range []string{day, region, "s3", "aws4_request", text} {
		by = seal(by, part)
	}
	request.Header.Set("Authorization", fmt.Sprintf(
		"AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", key, scope, signed, hex.EncodeToString(by),
	))
}

func sum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func seal(key []byte, text string) []byte {
	hash := hmac.New(sha256.New, key)
	hash.Write([]byte(text))
	return hash.Sum(nil)
}
