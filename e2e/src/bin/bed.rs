//! `bed`: builds, starts and cleans up the test bed from a shell. What it does is in the library.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command speaks to its user"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use etcd_operator_e2e::components::{Component, Group};
use etcd_operator_e2e::up::{self, Wanted};
use etcd_operator_e2e::{Cluster, ControlPlane, Options, bed_dir, cluster, components, standing};
use tokio::signal::unix::{SignalKind, signal};

/// The test bed: a real Kubernetes from plain processes on this machine.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the components of a group that are not in the cache yet.
    Build {
        /// Each holds all of the one before it.
        #[arg(value_enum, default_value = "control-plane")]
        group: Group,
    },
    /// Start an API server with its etcd, say how to reach it, and keep it until Ctrl-C or SIGTERM.
    ControlPlane,
    /// Start a cluster with 1 or 3 nodes, say how to reach it, and keep it until Ctrl-C or SIGTERM.
    Cluster {
        /// How many nodes.
        #[arg(long, default_value_t = 1)]
        nodes: u8,
    },
    /// Start a cluster, note down where it is, and keep it until SIGTERM; what `up` starts in the background. It ends if its
    /// standard input is a pipe that ends before the cluster stands.
    Keep {
        /// How many nodes.
        #[arg(long, default_value_t = 1)]
        nodes: u8,
    },
    /// Put the operator into a Kubernetes, with samples, and leave it running.
    Up {
        /// How many nodes the bed has: 1 or 3.
        #[arg(long, default_value_t = 1, conflicts_with = "context")]
        nodes: u8,
        /// Use this context of your kubeconfig instead of a bed.
        #[arg(long)]
        context: Option<String>,
        /// The operator's image, where the nodes of that Kubernetes can pull it.
        #[arg(long, requires = "context")]
        image: Option<String>,
        /// The operator's binary.
        #[arg(long)]
        operator: PathBuf,
    },
    /// End what `up` started.
    Down {
        /// Remove what was built for it, too.
        #[arg(long)]
        purge: bool,
    },
    /// End and remove what killed beds have left.
    Clean,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Build { group } => {
            for directory in components::prepare(group.sets()).await? {
                println!("{}", directory.display());
            }
        }
        Command::ControlPlane => {
            keep(async {
                Ok(Bed::ControlPlane(Box::new(
                    ControlPlane::start(Options::default()).await?,
                )))
            })
            .await?;
        }
        Command::Cluster { nodes } => {
            let options = cluster::Options {
                nodes,
                ..cluster::Options::default()
            };
            let start = Box::pin(async move { Cluster::start(&options).await });
            keep(async move { Ok(Bed::Cluster(Box::new(start.await?))) }).await?;
        }
        Command::Keep { nodes } => {
            let options = cluster::Options {
                nodes,
                report: Some(standing::fresh_report()?),
                ..cluster::Options::default()
            };
            let start = Box::pin(async move {
                let standing = async {
                    let cluster = Cluster::start(&options).await?;
                    standing::announce(&cluster)?;
                    anyhow::Ok(cluster)
                };
                tokio::select! {
                    biased;
                    outcome = standing => outcome,
                    () = standing::starter_ended() => bail!("nobody waits for the bed any more"),
                }
            });
            keep(async move { Ok(Bed::Cluster(Box::new(start.await?))) }).await?;
        }
        Command::Up {
            nodes,
            context,
            image,
            operator,
        } => {
            let wanted = match context {
                Some(name) => Wanted::Context { name, image },
                None => Wanted::Bed(nodes),
            };
            up::up(wanted, &operator).await?;
        }
        Command::Down { purge } => up::down(purge).await?,
        Command::Clean => {
            let cleaned = bed_dir::clean().await?;
            println!(
                "removed {} abandoned beds, ended {} processes",
                cleaned.beds, cleaned.processes
            );
        }
    }
    Ok(())
}

/// What can be kept running.
enum Bed {
    ControlPlane(Box<ControlPlane>),
    Cluster(Box<Cluster>),
}

impl Bed {
    fn control_plane(&self) -> &ControlPlane {
        match self {
            Self::ControlPlane(control_plane) => control_plane,
            Self::Cluster(cluster) => cluster.control_plane(),
        }
    }
}

async fn keep(start: impl Future<Output = Result<Bed>>) -> Result<()> {
    // Listening before anything is started: from here on a signal ends the bed in order.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let serve = async {
        let began = Instant::now();
        let kubectl = components::find(Component::Kubectl).await?;
        let bed = start.await?;
        let control_plane = bed.control_plane();
        let path = kubectl.parent().unwrap_or(Path::new(""));
        let said = format!(
            "# kubeconfig: {kubeconfig}\n# after {:.1} s serving at https://{} until Ctrl-C\nexport PATH='{}':\"$PATH\"\nexport KUBECONFIG='{kubeconfig}'\n",
            began.elapsed().as_secs_f32(),
            control_plane.address(),
            path.display(),
            kubeconfig = control_plane.kubeconfig().display(),
        );
        // At once: whoever has read what it waits for may read no further.
        print!("{said}");
        std::future::pending::<()>().await;
        Ok(())
    };
    tokio::select! {
        outcome = serve => outcome,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}
