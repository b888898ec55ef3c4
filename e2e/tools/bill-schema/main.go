// Command bill-schema holds a bill of materials in JSON against the schema of CycloneDX 1.6, without asking the network
// for a part of it. It prints what does not fit, and fails then.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/CycloneDX/sbom-utility/resources"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	home   = "http://cyclonedx.org/schema/"
	bill   = "bom-1.6.schema.json"
	seal   = "jsf-0.82.schema.json"
	spdx   = "spdx.schema.json"
	places = "schema/cyclonedx/1.6/"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "bill-schema FILE")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("it fits")
}

func check(path string) error {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, name := range []string{bill, seal} {
		text, err := resources.BOMSchemaFiles.ReadFile(places + name)
		if err != nil {
			return err
		}
		schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := compiler.AddResource(home+name, schema); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	// The list of single licences is not in that module: a bill that names one by its ID could not be judged.
	if err := compiler.AddResource(home+spdx, map[string]any{"not": map[string]any{}}); err != nil {
		return err
	}
	schema, err := compiler.Compile(home + bill)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(document); errors.As(err, &invalid) {
		return errors.New(strings.TrimSpace(invalid.Error()))
	} else if err != nil {
		return err
	}
	return nil
}
