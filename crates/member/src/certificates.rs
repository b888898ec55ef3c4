//! Where the certificates are with which members are asked. They are read when they are needed: a whole disk starts
//! whatever became of them.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use etcd_operator_etcd::endpoint::{Identity, Tls};

/// The files with which the guard connects to other members as a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    /// Who signs the members' certificates.
    pub authority: Option<PathBuf>,
    /// What is shown to a member that asks.
    pub certificate: Option<PathBuf>,
    /// The key of that.
    pub key: Option<PathBuf>,
    /// The name that members' certificates bear, where that is not the host that is asked.
    pub server_name: Option<String>,
}

impl Certificates {
    /// Reads the files when members are to be asked. `None` without a CA certificate. The own certificate is shown only
    /// if its key is given, too.
    pub fn read(&self) -> Result<Option<Tls>, String> {
        let Some(authority) = &self.authority else {
            return Ok(None);
        };
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(Identity {
                certificate: file(certificate)?,
                key: file(key)?,
            }),
            _ => None,
        };
        Ok(Some(Tls {
            authority: file(authority)?,
            identity,
            server_name: self.server_name.clone(),
        }))
    }
}

fn file(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: &dyn Display| format!("cannot read {}: {error}", path.display());
    fs::read(path).map_err(|error| failed(&error))
}
