// Command cilium-mcs is Cilium's implementation of the Multi-Cluster Services API for one cluster, without
// the rest of Cilium: no agent, no network, no addresses.
//
// It puts cells of Cilium together that are otherwise in two programs. clustermesh-apiserver's tell other
// clusters, through the store, what this one exports; cilium-operator's make ServiceImports, derived Services
// and EndpointSlices here of what the others tell. `isthmus sandbox` builds it once per machine and runs one
// for each cluster. All flags but --remote-clusters are Cilium's own.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/job"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	operatork8s "github.com/cilium/cilium/operator/k8s"
	controllerruntime "github.com/cilium/cilium/operator/pkg/controller-runtime"
	"github.com/cilium/cilium/operator/watchers"
	clustercfg "github.com/cilium/cilium/pkg/clustermesh/clustercfg/cell"
	"github.com/cilium/cilium/pkg/clustermesh/common"
	"github.com/cilium/cilium/pkg/clustermesh/endpointslicesync"
	"github.com/cilium/cilium/pkg/clustermesh/mcsapi"
	"github.com/cilium/cilium/pkg/clustermesh/operator"
	"github.com/cilium/cilium/pkg/clustermesh/types"
	"github.com/cilium/cilium/pkg/controller"
	"github.com/cilium/cilium/pkg/dial"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/k8s"
	"github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/k8s/resource"
	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	"github.com/cilium/cilium/pkg/kvstore"
	"github.com/cilium/cilium/pkg/kvstore/heartbeat"
	"github.com/cilium/cilium/pkg/kvstore/store"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/option"
)

const (
	name    = "cilium-mcs"
	remotes = "remote-clusters"
)

// services is a cluster's Services as Cilium's cells see them.
type services = resource.Resource[*slim.Service]

// gate lets remote clusters in once the controller of EndpointSlices can take them.
//
// At v1.18.4 that controller uses its store of Services as soon as a remote cluster is there, and has it only
// some moments after the start: with remote clusters from the beginning the program dies of a nil pointer. It
// asks for events after it has the store, which is what opens the gate.
type gate struct {
	services
	open func()
}

func (g gate) Events(ctx context.Context, options ...resource.EventsOpt) <-chan resource.Event[*slim.Service] {
	g.open()
	return g.services.Events(ctx, options...)
}

type config struct {
	RemoteClusters string
}

func (c config) Flags(flags *pflag.FlagSet) {
	flags.String(remotes, c.RemoteClusters, "Folder of what --clustermesh-config is to have: one file per remote cluster, put there once they can be taken")
}

// opened is the moment at which remote clusters can be taken.
type opened struct {
	context.Context
	open context.CancelFunc
}

func newOpened() opened {
	ctx, cancel := context.WithCancel(context.Background())
	return opened{ctx, cancel}
}

// letIn copies the files of the remote clusters to where Cilium looks for them.
func letIn(jobs job.Group, ours config, theirs common.Config, moment opened) error {
	if ours.RemoteClusters == "" {
		return nil
	}
	// What an earlier run of this program has left there would be too early.
	if err := os.RemoveAll(theirs.ClusterMeshConfig); err != nil {
		return err
	}
	if err := os.MkdirAll(theirs.ClusterMeshConfig, 0o700); err != nil {
		return err
	}
	jobs.Add(job.OneShot(remotes, func(ctx context.Context, _ cell.Health) error {
		select {
		case <-ctx.Done():
			return nil
		case <-moment.Done():
		}
		files, err := os.ReadDir(ours.RemoteClusters)
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(ours.RemoteClusters, file.Name()))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(theirs.ClusterMeshConfig, file.Name()), text, 0o600); err != nil {
				return err
			}
		}
		return nil
	}))
	return nil
}

var app = cell.Module("mcs", "Multi-Cluster Services API of one cluster",
	// The cluster, its Services and exports.
	client.Cell,
	cell.Config(k8s.DefaultConfig),
	cell.Provide(
		k8s.DefaultServiceWatchConfig,
		k8s.ServiceResource,
		mcsapi.ServiceExportResource,
		operatork8s.EndpointsResource,
	),
	controllerruntime.Cell,
	controller.Cell,

	// Who this cluster is, and the store in which clusters tell each other of themselves.
	cell.Config(types.DefaultClusterInfo),
	cell.Invoke(types.ClusterInfo.InitClusterIDMax, types.ClusterInfo.Validate),
	dial.ServiceResolverCell,
	kvstore.Cell(kvstore.EtcdBackendName),
	cell.Provide(func() kvstore.ExtraOptions { return kvstore.ExtraOptions{} }),
	store.Cell,
	heartbeat.Enabled,
	heartbeat.Cell,

	// To the store: this cluster, its exports and the endpoints of its Services.
	clustercfg.WithSyncedCanaries(false),
	clustercfg.Cell,
	mcsapi.ServiceExportSyncCell,
	cell.Provide(func() watchers.ServiceSyncConfig { return watchers.ServiceSyncConfig{Enabled: true} }),
	watchers.ServiceSyncCell,

	// From the store: imports, derived Services and their EndpointSlices.
	cell.Config(config{}),
	cell.Provide(newOpened),
	cell.Invoke(letIn),
	operator.Cell,
	mcsapi.Cell,
	cell.Decorate(
		func(all services, moment opened) services { return gate{all, moment.open} },
		endpointslicesync.Cell,
	),
)

func main() {
	mesh := hive.New(app)
	command := &cobra.Command{
		Use:   name,
		Short: "Cilium's Multi-Cluster Services API for one cluster",
		Run: func(*cobra.Command, []string) {
			option.Config.SetupLogging(mesh.Viper(), name)
			option.Config.Populate(logging.DefaultSlogLogger, mesh.Viper())
			if err := mesh.Run(logging.DefaultSlogLogger); err != nil {
				logging.Fatal(logging.DefaultSlogLogger, err.Error())
			}
		},
	}
	mesh.RegisterFlags(command.Flags())
	command.AddCommand(&cobra.Command{Use: "version", Short: "Print the version of Cilium", Run: printVersion})
	cobra.OnInitialize(option.InitConfig(logging.DefaultSlogLogger, command, name, name, mesh.Viper()))
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}

// printVersion writes the version that go.mod pins.
func printVersion(*cobra.Command, []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/cilium/cilium" {
			fmt.Println("cilium", module.Version)
		}
	}
}
