//! `etcd-operator`: see `etcd-operator --help`.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use etcd_operator_api::{crd, names::EXIT_BEFORE_ETCD};
use etcd_operator_manager::{
    cli::{Cli, Command, LogFormat},
    dry_run, jobs, logs, pod, run, version,
};

/// How long threads may still run after the manager has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let is_member = std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == "member");
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) if is_member => {
            let _ = error.print();
            return ExitCode::from(EXIT_BEFORE_ETCD);
        }
        Err(error) => error.exit(),
    };
    let result = execute(cli);
    if let Err(error) = &result {
        // If standard error is closed, the error cannot be reported.
        let _ = writeln!(std::io::stderr(), "Error: {error:?}");
    }
    // A return of the member command always means that it did not exec etcd.
    match result {
        _ if is_member => ExitCode::from(EXIT_BEFORE_ETCD),
        Ok(exit) => exit,
        Err(_) => ExitCode::FAILURE,
    }
}

fn execute(cli: Cli) -> Result<ExitCode> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is already installed"))?;
    match cli.command {
        Command::Backup(args) => return jobs::backup(*args).map(Into::into),
        Command::List(args) => return jobs::list(&args).map(Into::into),
        Command::Prune(args) => return jobs::prune(&args).map(Into::into),
        Command::Verify(args) => return jobs::run_order_only("verify", &args).map(Into::into),
        Command::Compare(args) => return jobs::run_order_only("compare", &args).map(Into::into),
        Command::Fetch(args) => return jobs::fetch(&args).map(Into::into),
        Command::Restore(args) => return dry_run::restore(&args).map(Into::into),
        Command::Inspect(args) => return jobs::inspect(&args).map(Into::into),
        Command::Manager(args) => {
            let _flush = logs::start_in_background(args.log_format, &args.log_level)?;
            let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
            let ended = runtime.block_on(run::manager(*args));
            // Dropping the runtime would wait forever for a reconcile that blocks its thread.
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            ended
        }
        Command::Member(args) => {
            logs::start(LogFormat::Human, "info")?;
            pod::member(*args)
        }
        Command::Tidy(args) => {
            logs::start(LogFormat::Human, "info")?;
            pod::tidy(&args)
        }
        Command::Ready(args) => pod::ready(args),
        Command::CheckImage(args) => pod::check_image(&args),
        Command::Install(args) => pod::install(&args),
        Command::Crds => {
            let documents: Result<Vec<_>, _> = crd::all().iter().map(serde_saphyr::to_string).collect();
            jobs::print(&format!(
                "---\n{}",
                documents
                    .context("cannot serialize the CustomResourceDefinitions")?
                    .join("---\n")
            ))
        }
        Command::Version => jobs::print(&version::text()),
    }?;
    Ok(ExitCode::SUCCESS)
}
