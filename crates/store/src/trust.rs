//! The root certificates that TLS connections trust: those of the machine, or built-in ones if the machine
//! has none (the container image contains only one binary). The user may add a private CA. Certificates are
//! always verified.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::secret::{InvalidConfig, Secret};

/// The key of the Secret that contains a private CA.
const CA_KEY: &str = "ca.crt";

/// Trusted root certificates.
#[derive(Clone, Debug)]
pub struct TrustedRoots {
    authorities: Vec<CertificateDer<'static>>,
}

impl TrustedRoots {
    /// The root certificates of the machine, plus the private CA in `ca` if there is one.
    pub fn new(setting: &str, ca: Option<&Secret>) -> Result<Self, InvalidConfig> {
        let mut authorities = rustls_native_certs::load_native_certs().certs;
        if authorities.is_empty() {
            authorities.extend(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
        }
        if let Some(ca) = ca {
            authorities.extend(parse_private_ca(setting, ca)?);
        }
        Ok(Self { authorities })
    }

    /// The certificates in PEM, for clients that take them as text.
    pub(crate) fn to_pem(&self) -> String {
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

    /// A TLS client configuration, for clients that take one.
    pub(crate) fn to_rustls_config(&self) -> Result<rustls::ClientConfig, InvalidConfig> {
        let mut roots = RootCertStore::empty();
        // Some certificates of the machine may be too old to parse. They are skipped.
        roots.add_parsable_certificates(self.authorities.iter().cloned());
        let provider = rustls::crypto::ring::default_provider();
        let config = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| InvalidConfig::new("TLS", error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(config)
    }
}

fn parse_private_ca(setting: &str, ca: &Secret) -> Result<Vec<CertificateDer<'static>>, InvalidConfig> {
    let text = ca.required(setting, CA_KEY)?;
    let bad = |problem: &str| {
        let problem = format!(
            "{problem}; it must contain certificates in PEM, beginning with -----BEGIN CERTIFICATE-----"
        );
        InvalidConfig::new(format!("the key {CA_KEY} of {setting}"), problem)
    };
    let found = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| bad("is not PEM"))?;
    let mut store = RootCertStore::empty();
    for certificate in &found {
        store
            .add(certificate.clone())
            .map_err(|_| bad("contains an invalid certificate"))?;
    }
    if found.is_empty() {
        return Err(bad("contains no certificate"));
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
    fn an_invalid_private_ca_is_refused_by_key() {
        for value in [
            "x",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let message = TrustedRoots::new("s3.caSecret", Some(&secret("ca.crt", value)))
                .expect_err("refused")
                .to_string();
            assert!(message.contains("ca.crt of s3.caSecret"), "{message}");
        }
        let message = TrustedRoots::new("s3.caSecret", Some(&secret("tls.crt", "x")))
            .expect_err("refused")
            .to_string();
        assert!(
            message.contains("no key ca.crt") && message.contains("tls.crt"),
            "{message}"
        );
    }

    #[test]
    fn public_root_certificates_exist_on_every_machine() {
        let trust = TrustedRoots::new("s3.caSecret", None).expect("trust");
        assert!(trust.authorities.len() > 50);
        assert!(trust.to_pem().matches("BEGIN CERTIFICATE").count() > 50);
        trust.to_rustls_config().expect("a configuration");
    }
}
