// Command karmada is four programs of Karmada's control plane, by its first argument.
//
// One binary holds all four, since they share most of their code and one build is enough. `isthmus sandbox`
// builds it once per machine and runs it beside a plain kube-apiserver; everything after the role goes to the
// program of that name unchanged.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	controllerruntime "sigs.k8s.io/controller-runtime"

	aggregated "github.com/karmada-io/karmada/cmd/aggregated-apiserver/app"
	manager "github.com/karmada-io/karmada/cmd/controller-manager/app"
	scheduler "github.com/karmada-io/karmada/cmd/scheduler/app"
	webhook "github.com/karmada-io/karmada/cmd/webhook/app"
)

const usage = `Usage: karmada ROLE [FLAGS]

Roles:
  aggregated-apiserver   serves clusters.cluster.karmada.io
  webhook                admission
  controller-manager     carries objects to members and back
  scheduler              chooses members
  version                print the version of Karmada

'karmada ROLE --help' lists the flags of a role.
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	role := os.Args[1]
	if role == "version" {
		printVersion()
		return
	}
	ctx := controllerruntime.SetupSignalHandler()
	controllerruntime.SetLogger(klog.Background())
	var command *cobra.Command
	switch role {
	case "aggregated-apiserver":
		command = aggregated.NewAggregatedApiserverCommand(ctx)
	case "webhook":
		command = webhook.NewWebhookCommand(ctx)
	case "controller-manager":
		command = manager.NewControllerManagerCommand(ctx)
	case "scheduler":
		command = scheduler.NewSchedulerCommand(ctx)
	default:
		fmt.Fprintf(os.Stderr, "karmada: unknown role %q\n\n%s", role, usage)
		os.Exit(2)
	}
	// The role goes, the rest stays in its order: cobra reads its flags from os.Args.
	os.Args = append(os.Args[:1], os.Args[2:]...)
	os.Exit(cli.Run(command))
}

// printVersion writes the version that go.mod pins.
func printVersion() {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/karmada-io/karmada" {
			fmt.Println("karmada", module.Version)
		}
	}
}
