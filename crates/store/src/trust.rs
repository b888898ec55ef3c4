//! Whom connections trust: the certificates of the machine, those built in where the machine has none (the image is
//! empty but for one binary), and a private authority where the user names one. No certificate is ever skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::secret::{BadConfig, Secret};

/// The key of a Secret that holds a private authority.
const CA_KEY: &str = "ca.crt";

/// The certificates that sign those of stores.
#[derive(Clone, Debug)]
pub struct Trust {
    authorities: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// What the machine trusts, and the authority in `ca` if there is one.
    pub fn new(setting: &str, ca: Option<&Secret>) -> Result<Self, BadConfig> {
        let mut authorities = rustls_native_certs::load_native_certs().certs;
        if authorities.is_empty() {
            authorities.extend(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
        }
        if let Some(ca) = ca {
            authorities.extend(private(setting, ca)?);
        }
        Ok(Self { authorities })
    }

    /// For clients that take certificates as text.
    pub(crate) fn pem(&self) -> String {
        let mut pem = String::new();
        for authority in &self.authorities {
            pem.push_str("-----BEGIN CERTIFICATE-----\n");
            let text = STANDARD.encode(authority);
            for line in text.as_bytes().chunks(64) {
                pem.extend(line.iter().map(|byte| char::from(*byte)));
                pem.push('\n');
            }
            pem.push_str("-----END CERTIFICATE-----\n");
        }
        pem
    }

    /// For clients that take a finished configuration.
    pub(crate) fn rustls(&self) -> Result<rustls::ClientConfig, BadConfig> {
        let mut roots = RootCertStore::empty();
        // Machines have certificates of forms that nobody uses any more.
        roots.add_parsable_certificates(self.authorities.iter().cloned());
        let provider = rustls::crypto::ring::default_provider();
        let config = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| BadConfig::new("TLS", error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(config)
    }
}

fn private(setting: &str, ca: &Secret) -> Result<Vec<CertificateDer<'static>>, BadConfig> {
    let text = ca.required(setting, CA_KEY)?;
    let bad = |problem: &str| {
        let problem = format!(
            "{problem}; it must hold certificates in PEM, beginning with -----BEGIN CERTIFICATE-----"
        );
        BadConfig::new(format!("the key {CA_KEY} of {setting}"), problem)
    };
    let found = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| bad("is no PEM"))?;
    let mut store = RootCertStore::empty();
    for certificate in &found {
        store
            .add(certificate.clone())
            .map_err(|_| bad("holds a certificate that cannot be read"))?;
    }
    if found.is_empty() {
        return Err(bad("holds no certificate"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn secret(key: &str, value: &str) -> Secret {
        Secret::from(BTreeMap::from([(key.to_owned(), value.as_bytes().to_vec())]))
    }

    #[test]
    fn a_private_authority_that_cannot_be_read_is_refused_by_key() {
        for value in [
            "x",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let message = Trust::new("s3.caSecret", Some(&secret("ca.crt", value)))
                .expect_err("refused")
                .to_string();
            assert!(message.contains("ca.crt of s3.caSecret"), "{message}");
        }
        let message = Trust::new("s3.caSecret", Some(&secret("tls.crt", "x")))
            .expect_err("refused")
            .to_string();
        assert!(
            message.contains("no key ca.crt") && message.contains("tls.crt"),
            "{message}"
        );
    }

    #[test]
    fn public_authorities_are_there_on_every_machine() {
        let trust = Trust::new("s3.caSecret", None).expect("trust");
        assert!(trust.authorities.len() > 50);
        assert!(trust.pem().matches("BEGIN CERTIFICATE").count() > 50);
        trust.rustls().expect("a configuration");
    }
}
