//! An object store that speaks one of the four protocols, for those that no server can be had for. It keeps objects in
//! memory, checks signatures where its protocol has them, and runs until it is killed. It is started in the network of a
//! node, where pods find it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use etcd_operator_store::testing::fake::{CertificateAuthority, Dialect, Fake};

/// What it speaks.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Speech {
    Oss,
    Gcs,
    Abs,
}

/// An object store for tests.
#[derive(Debug, Parser)]
struct Arguments {
    /// The protocol.
    speech: Speech,
    /// Where it listens.
    address: SocketAddr,
    /// Speak TLS, and write the certificate of the authority to this file.
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let dialect = match arguments.speech {
        Speech::Oss => Dialect::Oss,
        Speech::Gcs => Dialect::Gcs,
        Speech::Abs => Dialect::Abs,
    };
    let authority = arguments.authority.map(|file| {
        (
            file,
            CertificateAuthority::for_names(&[&arguments.address.ip().to_string()]),
        )
    });
    let fake = Fake::listen(
        arguments.address,
        dialect,
        authority.as_ref().map(|(_, authority)| authority),
    )
    .await;
    if let Some((file, authority)) = &authority
        && let Err(error) = std::fs::write(file, &authority.pem)
    {
        eprintln!("cannot write {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    eprintln!("listens at {}", fake.endpoint);
    std::future::pending().await
}
