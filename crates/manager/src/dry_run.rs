//! `etcd-operator restore --dry-run`: predicts what a restore would do. Reads from the API server and the store; changes
//! nothing.

mod backup;
mod members;
mod objects;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use etcd_operator_job::clock;
use etcd_operator_job::outcome::Exit;
use etcd_operator_restore::dry_run::{self, BackupCheck, DryRun, Inputs};

use self::objects::Found;
use crate::cli::LogFormat;
use crate::{connection, jobs, logs, values};

/// Flags of `etcd-operator restore`.
#[derive(Clone, Debug, Args)]
pub struct RestoreArgs {
    /// Show what the restore would do without changing anything.
    #[arg(long)]
    pub dry_run: bool,

    /// The name of an existing EtcdRestore.
    #[arg(
        value_name = "NAME",
        conflicts_with = "file",
        required_unless_present = "file"
    )]
    pub name: Option<String>,

    /// The manifest of an EtcdRestore, which need not exist yet; - reads standard input.
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The namespace. Default: the one in the manifest, or of the kubeconfig's context.
    #[arg(long, short, value_name = "NAME", value_parser = values::parse_namespace)]
    pub namespace: Option<String>,

    /// The output format.
    #[arg(long, short, value_name = "FORM", default_value = "human")]
    pub output: OutputFormat,

    /// Check only size and both ends of the backup. The restore itself always verifies every byte.
    #[arg(long)]
    pub quick: bool,

    /// The local mount path of the volume with the backup, for storage type Local.
    #[arg(long, value_name = "DIR")]
    pub volume: Option<PathBuf>,

    /// The directory to which the backup is downloaded. Default: the directory for temporary files.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable text.
    Human,
    /// A JSON object.
    Json,
}

/// `etcd-operator restore --dry-run`: prints the prediction, and ends with `Exit::Never` if the restore would not go through.
/// Without the flag it fails and changes nothing: creating an `EtcdRestore` starts a restore.
pub fn restore(args: &RestoreArgs) -> Result<Exit> {
    if !args.dry_run {
        bail!(
            "to start a restore, create an EtcdRestore: kubectl apply -f FILE. With --dry-run this command shows what the restore would do"
        );
    }
    logs::start(LogFormat::Human, "warn")?;
    let runtime = tokio::runtime::Runtime::new().context("the async runtime cannot start")?;
    let result = runtime.block_on(async {
        let client = kube::Client::try_from(connection::config().await?)?;
        tokio::select! {
            result = Box::pin(run(args, client)) => result,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; nothing was changed"),
        }
    })?;
    let text = match args.output {
        OutputFormat::Human => result.to_string(),
        OutputFormat::Json => format!("{}\n", serde_json::to_string_pretty(&result)?),
    };
    jobs::print(&text)?;
    Ok(if result.passes { Exit::Done } else { Exit::Never })
}

/// Reads all objects and the backup, and predicts the restore. An invalid spec and objects that cannot be read are
/// errors; all other obstacles are in the prediction.
pub async fn run(args: &RestoreArgs, client: kube::Client) -> Result<DryRun> {
    let found = Box::pin(Found::read(args, client)).await?;
    let inputs = Inputs {
        restore: &found.restore,
        cluster: found.cluster.as_ref(),
        backup: found.backup.as_ref(),
        others: &found.others,
        claim: found.claim.as_ref(),
        now: clock::now(),
    };
    let observed = dry_run::observe(&inputs).map_err(|refused| {
        let all: Vec<_> = refused.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("this EtcdRestore would be refused: {}", all.join("; "))
    })?;
    let check = match &observed.source {
        Ok(source) => backup::read(args, source, &found).await,
        Err(why) => BackupCheck::Failed(why.clone()),
    };
    let members = match &found.cluster {
        Some(cluster) => members::member_states(cluster, &found).await,
        None => Vec::new(),
    };
    Ok(dry_run::dry_run(&found.restore, &observed, &check, members))
}
