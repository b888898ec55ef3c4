//! `etcd-operator`: see `etcd-operator --help`.

use std::io::Write as _;

use anyhow::{Context as _, Result, anyhow};
use etcd_operator_api::crd;
use etcd_operator_manager::{
    cli::{Cli, Command, LogFormat},
    logs, pod, run, version,
};

fn main() -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is installed already"))?;
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Manager(args) => {
            logs::start(args.log_format, &args.log_level)?;
            let runtime = tokio::runtime::Runtime::new().context("the async runtime cannot start")?;
            runtime.block_on(run::manager(*args))
        }
        Command::Member(args) => {
            logs::start(LogFormat::Human, "info")?;
            pod::member(*args)
        }
        Command::Ready(args) => pod::ready(args),
        Command::Install(args) => pod::install(&args),
        Command::Crds => {
            let documents: Result<Vec<_>, _> = crd::all().iter().map(serde_saphyr::to_string).collect();
            print(&format!(
                "---\n{}",
                documents
                    .context("the definitions cannot be written")?
                    .join("---\n")
            ))
        }
        Command::Version => print(&version::text()),
    }
}

/// Prints, and takes a reader that went away (`| head`) for the end.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output cannot be written"),
    }
}
