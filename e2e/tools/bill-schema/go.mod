module etcd-operator/e2e/tools/bill-schema

go 1.26.0

require (
	github.com/CycloneDX/sbom-utility v0.16.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
)

require golang.org/x/text v0.14.0 // indirect
