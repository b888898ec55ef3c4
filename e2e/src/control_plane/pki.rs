//! The bed's own certificates, made fresh for every control plane: P-256, by ring, in memory.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// A certificate and its private key, both PEM.
pub(crate) struct Identity {
    /// The certificate.
    pub(crate) certificate: String,
    /// Its key, PKCS #8.
    pub(crate) key: String,
}

/// The authority that server and clients of one control plane trust.
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The pair that signs and verifies service account tokens, both PEM.
pub(crate) struct TokenKeys {
    /// Signs tokens.
    pub(crate) private: String,
    /// Verifies them.
    pub(crate) public: String,
}

impl Authority {
    /// A new authority.
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "etcd-operator test bed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("cannot make the authority's key")?;
        let certificate = params
            .self_signed(&key)
            .context("cannot sign the authority's certificate")?
            .pem();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// What server and clients are told to trust, PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A serving certificate for these host names and addresses.
    pub(crate) fn server(&self, name: &str, hosts: &[&str]) -> Result<Identity> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let params = CertificateParams::new(hosts).context("a host name cannot stand in a certificate")?;
        self.sign(params, name, None, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client certificate: Kubernetes reads the user from its common name and a group from its organization.
    pub(crate) fn client(&self, user: &str, group: &str) -> Result<Identity> {
        self.sign(
            CertificateParams::default(),
            user,
            Some(group),
            ExtendedKeyUsagePurpose::ClientAuth,
        )
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        name: &str,
        group: Option<&str>,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        params.distinguished_name = DistinguishedName::new();
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("cannot sign the certificate of {name}"))?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl TokenKeys {
    /// A new pair.
    pub(crate) fn new() -> Result<Self> {
        let pair = KeyPair::generate().context("cannot make the service account key")?;
        Ok(Self {
            private: pair.serialize_pem(),
            public: pair.public_key_pem(),
        })
    }
}
