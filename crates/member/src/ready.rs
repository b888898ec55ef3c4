//! Whether the member beside this process may get clients: it votes, and answers a linearizable read. Asked every few
//! seconds in every pod of a version that cannot tell learners apart by itself, so it asks twice and ends.

use etcd_operator_etcd::client::Client;
use etcd_operator_etcd::endpoint::Endpoint;

/// Why the member is not ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// It does not answer, or not in time.
    #[error(transparent)]
    Silent(#[from] etcd_operator_etcd::error::Error),
    /// It follows without a vote.
    #[error("{0} is a learner")]
    Learner(etcd_operator_etcd::url::ClientUrl),
    /// The question could not be asked.
    #[error("cannot ask: {0}")]
    Setup(#[from] std::io::Error),
}

/// The readiness probe of one member: it is a voter and answers a linearizable read. It blocks until the answers are
/// there, and has a runtime of its own.
pub fn check(endpoint: &Endpoint) -> Result<(), NotReady> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        let client = Client::connect(endpoint).await?;
        let votes = async || {
            if client.status().await?.is_learner {
                return Err(NotReady::Learner(endpoint.url.clone()));
            }
            Ok(())
        };
        votes().await?;
        client.position().await?;
        // A member that joins takes itself for a voter until it has applied its own coming, and has when it has read.
        votes().await
    });
    runtime.shutdown_background();
    outcome
}
