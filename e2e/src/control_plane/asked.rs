//! What a control plane has been asked, by its own account: the audit log and its metrics.

use std::time::Duration;

use anyhow::{Context, Result};

use super::ControlPlane;
use super::audit::{self, AuditEntry, AuditFilter, AuditMark};
use crate::deadline::until;
use crate::rights::{self, Heard};

impl ControlPlane {
    /// The present end of the audit log, before the line that is still being written.
    pub fn audit_mark(&self) -> AuditMark {
        audit::end(&self.files.audit_log).unwrap_or_default()
    }

    /// The requests logged so far that the filter admits, in the order in which they first appear. A request is
    /// logged about when it is answered, not before: to wait for one, use [`ControlPlane::audit_until`].
    pub fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
        audit::requests(&self.files.audit_log, filter)
    }

    /// What the operator asked for so far, and what became of it.
    pub fn heard(&self) -> Result<Heard> {
        rights::hear(&self.files.audit_log)
    }

    /// Waits until at least `count` requests that the filter admits are logged.
    pub async fn audit_until(
        &self,
        filter: &AuditFilter,
        count: usize,
        within: Duration,
    ) -> Result<Vec<AuditEntry>> {
        until(&format!("{count} requests in the audit log"), within, || {
            let found = self.audit(filter);
            async move { found.map(|found| (found.len() >= count).then_some(found)) }
        })
        .await
    }

    /// The API server's own metrics, in the text format.
    pub async fn metrics(&self) -> Result<String> {
        self.get_text(&self.client().await?, "/metrics")
            .await
            .context("cannot read the API server's metrics")
    }
}
