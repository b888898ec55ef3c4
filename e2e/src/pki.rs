//! Certificates made for a test and forgotten with it: P-256, by ring, in memory.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// A certificate and its private key, both PEM.
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS #8.
    pub key: String,
}

/// The authority that server and clients of one control plane trust.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The pair that signs and verifies service account tokens, both PEM.
pub struct TokenKeys {
    /// Signs tokens.
    pub private: String,
    /// Verifies them.
    pub public: String,
}

impl Authority {
    /// A new authority.
    pub fn new() -> Result<Self> {
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
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A serving certificate for these host names and addresses.
    pub fn server(&self, name: &str, hosts: &[&str]) -> Result<Identity> {
        self.sign(params(hosts)?, name, None, &[ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// A certificate of a member of etcd, which serves and asks others.
    pub fn peer(&self, name: &str, hosts: &[&str]) -> Result<Identity> {
        let usages = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        self.sign(params(hosts)?, name, None, &usages)
    }

    /// A client certificate: Kubernetes reads the user from its common name and a group from its organization.
    pub fn client(&self, user: &str, group: &str) -> Result<Identity> {
        self.sign(
            CertificateParams::default(),
            user,
            Some(group),
            &[ExtendedKeyUsagePurpose::ClientAuth],
        )
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        name: &str,
        group: Option<&str>,
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<Identity> {
        params.distinguished_name = DistinguishedName::new();
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
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

/// A certificate of a member of etcd that is its own authority, as `openssl req -x509` makes it: `CA:TRUE`, and for any use.
pub fn self_signed(name: &str, hosts: &[&str]) -> Result<Identity> {
    let mut params = params(hosts)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().context("cannot make a key")?;
    let certificate = params
        .self_signed(&key)
        .with_context(|| format!("cannot sign the certificate of {name}"))?;
    Ok(Identity {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn params(hosts: &[&str]) -> Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    CertificateParams::new(hosts).context("a host name cannot stand in a certificate")
}

impl TokenKeys {
    /// A new pair.
    pub fn new() -> Result<Self> {
        let pair = KeyPair::generate().context("cannot make the service account key")?;
        Ok(Self {
            private: pair.serialize_pem(),
            public: pair.public_key_pem(),
        })
    }
}
