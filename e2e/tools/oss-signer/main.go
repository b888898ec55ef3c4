// Command oss-signer shows what the vendor's own client of OSS signs, without sending anything. `sign` reads requests as
// JSON, one a line, and prints the signature of each; `make SEED COUNT` lets the client make requests of its own and
// prints them as they would go over the wire.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/credentials"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/signer"
)

// keys is a key pair, perhaps with a token.
type keys struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	Token  string `json:"token"`
	Region string `json:"region"`
}

// unsigned is a request to be signed; nothing in it is encoded.
type unsigned struct {
	keys
	Method  string            `json:"method"`
	Bucket  string            `json:"bucket"`
	Key     string            `json:"key"`
	Query   map[string]string `json:"query"`
	Headers map[string]string `json:"headers"`
	Time    int64             `json:"time"`
}

// signed is a request as it would go over the wire.
type signed struct {
	keys
	Method  string            `json:"method"`
	Host    string            `json:"host"`
	Path    string            `json:"path"`
	Query   string            `json:"query"`
	Headers map[string]string `json:"headers"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oss-signer:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "sign":
		return sign(os.Stdin, os.Stdout)
	case len(arguments) == 3 && arguments[0] == "make":
		seed, err := strconv.ParseInt(arguments[1], 10, 64)
		if err != nil {
			return err
		}
		count, err := strconv.Atoi(arguments[2])
		if err != nil {
			return err
		}
		return makeRequests(seed, count, os.Stdout)
	}
	return errors.New("usage: oss-signer sign | oss-signer make SEED COUNT")
}

func sign(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked unsigned
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		query := url.Values{}
		for name, value := range asked.Query {
			query.Set(name, value)
		}
		request, err := http.NewRequest(asked.Method, "https://oss.example.com/?"+query.Encode(), nil)
		if err != nil {
			return err
		}
		for name, value := range asked.Headers {
			request.Header.Set(name, value)
		}
		signing := &signer.SigningContext{
			Product:     oss.Ptr("oss"),
			Region:      &asked.Region,
			Bucket:      &asked.Bucket,
			Key:         &asked.Key,
			Request:     request,
			Credentials: &credentials.Credentials{AccessKeyID: asked.ID, AccessKeySecret: asked.Secret, SecurityToken: asked.Token},
			Time:        time.Unix(asked.Time, 0),
		}
		if err := (&signer.SignerV4{}).Sign(context.Background(), signing); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, request.Header.Get("Authorization")); err != nil {
			return err
		}
	}
	return lines.Err()
}

// recorder keeps the last request and answers it with a refusal.
type recorder struct {
	last *http.Request
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	r.last = request
	if request.Body != nil {
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: request}, nil
}

func makeRequests(seed int64, count int, out io.Writer) error {
	random := rand.New(rand.NewSource(seed))
	for range count {
		pair := keys{ID: "LTAI" + text(random, plain, 16), Secret: text(random, plain, 30), Region: "cn-" + text(random, lower, 8)}
		if random.Intn(2) == 0 {
			pair.Token = text(random, plain, 60)
		}
		recorder := &recorder{}
		config := oss.LoadDefaultConfig().
			WithRegion(pair.Region).
			WithCredentialsProvider(credentials.NewStaticCredentialsProvider(pair.ID, pair.Secret, pair.Token)).
			WithRetryMaxAttempts(1).
			WithHttpClient(&http.Client{Transport: recorder})
		ask(random, oss.NewClient(config))
		if recorder.last == nil {
			return errors.New("the client sent nothing")
		}
		headers := map[string]string{}
		for name, values := range recorder.last.Header {
			headers[strings.ToLower(name)] = strings.Join(values, ",")
		}
		line, err := json.Marshal(signed{
			keys:    pair,
			Method:  recorder.last.Method,
			Host:    recorder.last.URL.Host,
			Path:    recorder.last.URL.EscapedPath(),
			Query:   recorder.last.URL.RawQuery,
			Headers: headers,
		})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, string(line)); err != nil {
			return err
		}
	}
	return nil
}

const (
	lower = "abcdefghijklmnopqrstuvwxyz"
	plain = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	odd   = plain + " /%+&=#?~!@$,;:'()*[]{}-._äß€🦀"
)

func text(random *rand.Rand, letters string, length int) string {
	runes := []rune(letters)
	var made strings.Builder
	for range length {
		made.WriteRune(runes[random.Intn(len(runes))])
	}
	return made.String()
}

// ask lets the client do one of the things a backup needs. The refusal is what the recorder answers; it says nothing.
func ask(random *rand.Rand, client *oss.Client) {
	ctx := context.Background()
	bucket, key := oss.Ptr("bucket-"+text(random, lower, 5)), oss.Ptr("k"+text(random, odd, 1+random.Intn(30)))
	upload := oss.Ptr(text(random, plain, 20))
	body := strings.NewReader(text(random, plain, 50))
	switch random.Intn(9) {
	case 0:
		_, _ = client.PutObject(ctx, &oss.PutObjectRequest{Bucket: bucket, Key: key, Body: body, ForbidOverwrite: oss.Ptr("true"), Metadata: map[string]string{"mark": text(random, plain, 10)}})
	case 1:
		_, _ = client.GetObject(ctx, &oss.GetObjectRequest{Bucket: bucket, Key: key, Range: oss.Ptr("bytes=1-2"), RangeBehavior: oss.Ptr("standard")})
	case 2:
		_, _ = client.HeadObject(ctx, &oss.HeadObjectRequest{Bucket: bucket, Key: key})
	case 3:
		_, _ = client.DeleteObject(ctx, &oss.DeleteObjectRequest{Bucket: bucket, Key: key})
	case 4:
		_, _ = client.InitiateMultipartUpload(ctx, &oss.InitiateMultipartUploadRequest{Bucket: bucket, Key: key, ContentType: oss.Ptr("application/octet-stream")})
	case 5:
		_, _ = client.UploadPart(ctx, &oss.UploadPartRequest{Bucket: bucket, Key: key, UploadId: upload, PartNumber: int32(1 + random.Intn(10000)), Body: body, ContentMD5: oss.Ptr("1B2M2Y8AsgTpgAmY7PhCfg==")})
	case 6:
		_, _ = client.AbortMultipartUpload(ctx, &oss.AbortMultipartUploadRequest{Bucket: bucket, Key: key, UploadId: upload})
	case 7:
		_, _ = client.ListObjectsV2(ctx, &oss.ListObjectsV2Request{Bucket: bucket, Prefix: key, MaxKeys: int32(1 + random.Intn(1000)), EncodingType: oss.Ptr("url"), ContinuationToken: oss.Ptr(text(random, odd, 12))})
	default:
		_, _ = client.ListMultipartUploads(ctx, &oss.ListMultipartUploadsRequest{Bucket: bucket, Prefix: key, KeyMarker: oss.Ptr(text(random, odd, 12)), UploadIdMarker: upload})
	}
}
