// Command helm is Helm itself, linked from its published Go module: the tests render charts/isthmus with it.
//
// `make helm` builds it once per machine. Every argument goes to Helm unchanged.
package main

import (
	"errors"
	"fmt"
	"os"

	"helm.sh/helm/v4/pkg/cmd"
)

func main() {
	root, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err == nil {
		err = root.Execute()
	} else {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	if err == nil {
		return
	}
	var coded cmd.CommandError
	if errors.As(err, &coded) {
		os.Exit(coded.ExitCode)
	}
	os.Exit(1)
}
