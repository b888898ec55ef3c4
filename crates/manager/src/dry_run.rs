//! `etcd-operator restore --dry-run`: what a restore would do, read from the API server and the store. Nothing is changed.

mod backup;
mod members;
mod objects;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use etcd_operator_job::clock;
use etcd_operator_job::outcome::Exit;
use etcd_operator_restore::preview::{self, Known, Objects, Preview};

use self::objects::Found;
use crate::cli::LogFormat;
use crate::{connection, jobs, logs, values};

/// Flags of `etcd-operator restore`.
#[derive(Clone, Debug, Args)]
pub struct RestoreArgs {
    /// Tell what the restore would do, and do nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// An EtcdRestore that exists.
    #[arg(
        value_name = "NAME",
        conflicts_with = "file",
        required_unless_present = "file"
    )]
    pub name: Option<String>,

    /// The manifest of an EtcdRestore, which need not exist yet; - reads it from standard input.
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The namespace. Default: that of the manifest, or of the kubeconfig's context.
    #[arg(long, short, value_name = "NAME", value_parser = values::namespace)]
    pub namespace: Option<String>,

    /// For people or for programs.
    #[arg(long, short, value_name = "FORM", default_value = "human")]
    pub output: Form,

    /// Look at the ends of the backup instead of reading every byte of it, as the restore itself does first.
    #[arg(long)]
    pub quick: bool,

    /// Where the volume is mounted here that the backup lies on, for storage type Local.
    #[arg(long, value_name = "DIR")]
    pub volume: Option<PathBuf>,

    /// Where the backup is laid out to be read. Default: the directory for temporary files.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// In which form it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Lines of text.
    Human,
    /// One JSON object.
    Json,
}

/// `etcd-operator restore`
pub fn restore(args: &RestoreArgs) -> Result<Exit> {
    if !args.dry_run {
        bail!(
            "a restore is asked for by its object: kubectl apply -f FILE. With --dry-run this command tells what it would do"
        );
    }
    logs::start(LogFormat::Human, "warn")?;
    let runtime = tokio::runtime::Runtime::new().context("the async runtime cannot start")?;
    let told = runtime.block_on(async {
        let client = kube::Client::try_from(connection::config().await?)?;
        tokio::select! {
            told = Box::pin(tell(args, client)) => told,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; nothing was changed"),
        }
    })?;
    let text = match args.output {
        Form::Human => told.to_string(),
        Form::Json => format!("{}\n", serde_json::to_string_pretty(&told)?),
    };
    jobs::print(&text)?;
    Ok(if told.passes { Exit::Done } else { Exit::Never })
}

/// Reads everything, and tells.
pub async fn tell(args: &RestoreArgs, client: kube::Client) -> Result<Preview> {
    let found = Box::pin(Found::read(args, client)).await?;
    let objects = Objects {
        restore: &found.restore,
        cluster: found.cluster.as_ref(),
        backup: found.backup.as_ref(),
        others: &found.others,
        claim: found.claim.as_ref(),
        now: clock::now(),
    };
    let world = preview::world(&objects).map_err(|refused| {
        let all: Vec<_> = refused.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("this EtcdRestore would be refused: {}", all.join("; "))
    })?;
    let known = match &world.source {
        Ok(source) => backup::read(args, source, &found).await,
        Err(why) => Known::No(why.clone()),
    };
    let members = match &found.cluster {
        Some(cluster) => members::now(cluster, &found).await,
        None => Vec::new(),
    };
    Ok(preview::preview(&found.restore, &world, &known, members))
}
