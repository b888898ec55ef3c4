// Command probe is what scenarios run in pods: one static binary that needs nothing of its image. Each verb does one
// thing, prints one JSON object, and fails with a sentence on standard error. What an answer means is decided by the
// scenario, never here.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// verb is one thing probe can do.
type verb struct {
	name      string
	arguments []string
	about     string
	run       func(arguments []string) (any, error)
}

// patience bounds everything that waits for somebody else.
const patience = 5 * time.Second

func verbs() []verb {
	return []verb{
		{"pause", nil, "waits for a signal and ends", pause},
		{"serve", []string{"ADDRESS"}, "answers HTTP until a signal; /bytes/N answers with N bytes", serve},
		{"meddle", []string{"ADDRESS", "URL", "CONTROL"}, "passes HTTP on to URL, with the faults that CONTROL sets", meddle},
		{"get", []string{"URL"}, "fetches over HTTP and measures", get},
		{"s3", []string{"METHOD", "URL", "BYTES"}, "sends a signed request with so many bytes; URL holds key and secret", s3},
		{"connect", []string{"HOST:PORT"}, "opens a TCP connection", connect},
		{"lookup", []string{"NAME"}, "asks the name server", lookup},
		{"write", []string{"FILE", "BYTES"}, "appends zeros and syncs them to disk", write},
		{"sync", []string{"FILE", "TIMES"}, "measures writing 4 KiB and syncing it", syncs},
		{"read", []string{"FILE"}, "prints what a file holds", read},
		{"space", []string{"DIRECTORY"}, "tells size and free space of a file system", space},
	}
}

func main() {
	switch filepath.Base(os.Args[0]) {
	case "env":
		fmt.Fprintln(os.Stderr, "env:", env(os.Args[1:]))
		os.Exit(127)
	case "etcd":
		fmt.Fprintln(os.Stderr, "etcd:", etcd(os.Args[1:]))
		os.Exit(127)
	}
	if err := call(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// env becomes the command that follows assignments, as in an image that has a shell; it returns only when that fails.
func env(words []string) error {
	variables := os.Environ()
	for len(words) > 0 && strings.Contains(words[0], "=") {
		variables, words = append(variables, words[0]), words[1:]
	}
	if len(words) == 0 {
		return fmt.Errorf("no command is given")
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, words, variables)
}

// etcd becomes the etcd beside it, unless it would run the member that the image names; it returns only when that fails.
func etcd(flags []string) error {
	member, err := os.ReadFile("/etc/panics-as")
	if err != nil {
		return err
	}
	for _, flag := range flags {
		if flag == "--name="+strings.TrimSpace(string(member)) {
			panic("the image is made to panic as " + flag)
		}
	}
	path := "/usr/local/libexec/etcd"
	return syscall.Exec(path, append([]string{path}, flags...), os.Environ())
}

func call(arguments []string) error {
	for _, verb := range verbs() {
		if len(arguments) == 0 || arguments[0] != verb.name {
			continue
		}
		if len(arguments)-1 != len(verb.arguments) {
			return fmt.Errorf("%s takes %v", verb.name, verb.arguments)
		}
		answer, err := verb.run(arguments[1:])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(answer)
	}
	usage := "what should it do?"
	for _, verb := range verbs() {
		usage += fmt.Sprintf("\n  %s %v: %s", verb.name, verb.arguments, verb.about)
	}
	return fmt.Errorf("%s", usage)
}
