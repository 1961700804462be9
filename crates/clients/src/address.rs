//! Which addresses belong to the public internet.
//!
//! Invariant: an address is public only if nothing says otherwise. For IPv6 that means global unicast less what is
//! set apart in it, so every form that carries an IPv4 address inside (mapped, compatible, NAT64, 6to4, Teredo) is
//! refused whatever it carries. Not here: names and how they are looked up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are no part of the public internet: first address, length of the prefix.
const V4_SET_APART: [(Ipv4Addr, u32); 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network, unspecified
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // shared by carriers; a cloud's metadata at .100.200
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // a cloud's own services, in a public range
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments, metadata at .192
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 31, 196, 0), 24),  // AS112: answers for private names
    (Ipv4Addr::new(192, 52, 193, 0), 24),  // AMT
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(192, 175, 48, 0), 24),  // AS112
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 3),      // multicast, reserved, broadcast
];

/// IPv6 global unicast: all else is loopback, link-local, unique local, multicast, NAT64, mapped or not given out.
const V6_GLOBAL: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Networks within it that are no part of the public internet.
const V6_SET_APART: [(Ipv6Addr, u32); 6] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocols: Teredo, benchmarks, ORCHID, AMT
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48), // AS112
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16), // the 6bone of old
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Whether an address belongs to the public internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !V4_SET_APART.iter().any(|network| within_v4(address, *network)),
        IpAddr::V6(address) => {
            within_v6(address, V6_GLOBAL)
                && !V6_SET_APART.iter().any(|network| within_v6(address, *network))
                && !is_isatap(address)
        }
    }
}

fn within_v4(address: Ipv4Addr, (network, prefix): (Ipv4Addr, u32)) -> bool {
    (address.to_bits() ^ network.to_bits()).leading_zeros() >= prefix
}

fn within_v6(address: Ipv6Addr, (network, prefix): (Ipv6Addr, u32)) -> bool {
    (address.to_bits() ^ network.to_bits()).leading_zeros() >= prefix
}

/// An IPv4 address tunnelled in the lower half, under any prefix.
fn is_isatap(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    matches!((segments[4], segments[5]), (0x0000 | 0x0200, 0x5efe))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(texts: &[&str], public: bool) {
        for text in texts {
            assert_eq!(is_public(text.parse().unwrap()), public, "{text}");
        }
    }

    #[test]
    fn tp50_no_private_form_of_an_address_is_public() {
        all(
            &[
                "0.0.0.0",
                "0.255.255.255",
                "10.0.0.0",
                "10.255.255.255",
                "100.64.0.0",
                "100.100.100.200",
                "100.127.255.255",
                "127.0.0.1",
                "127.255.255.254",
                "168.63.129.16",
                "169.254.0.0",
                "169.254.169.254",
                "172.16.0.0",
                "172.31.255.255",
                "192.0.0.0",
                "192.0.0.192",
                "192.0.2.1",
                "192.31.196.1",
                "192.52.193.1",
                "192.88.99.1",
                "192.168.0.0",
                "192.168.255.255",
                "192.175.48.1",
                "198.18.0.0",
                "198.19.255.255",
                "198.51.100.1",
                "203.0.113.255",
                "224.0.0.1",
                "239.255.255.255",
                "240.0.0.0",
                "255.255.255.255",
            ],
            false,
        );
        all(
            &[
                "::",
                "::1",
                "::127.0.0.1",
                "::8.8.8.8",
                "::ffff:169.254.169.254",
                "::ffff:8.8.8.8",
                "::ffff:0:8.8.8.8",
                "64:ff9b::7f00:1",
                "64:ff9b::8.8.8.8",
                "64:ff9b:1::a00:1",
                "100::1",
                "2001::1",
                "2001:0:7f00:1::",
                "2001:2::1",
                "2001:20::1",
                "2001:1ff:ffff::1",
                "2001:db8::1",
                "2002:7f00:1::",
                "2002:808:808::1",
                "2620:4f:8000::1",
                "3ffe::1",
                "3fff::1",
                "4000::1",
                "5f00::1",
                "fc00::1",
                "fd00:ec2::254",
                "fdff::1",
                "fe80::1",
                "febf::1",
                "fec0::1",
                "ff02::1",
                "2a00:1450::5efe:a00:1",
                "2a00:1450::200:5efe:a00:1",
            ],
            false,
        );
    }

    #[test]
    fn neighbours_of_what_is_set_apart_are_public() {
        all(
            &[
                "1.1.1.1",
                "8.8.8.8",
                "9.255.255.255",
                "11.0.0.0",
                "100.63.255.255",
                "100.128.0.0",
                "126.255.255.255",
                "128.0.0.0",
                "168.63.129.15",
                "168.63.129.17",
                "169.253.255.255",
                "169.255.0.0",
                "172.15.255.255",
                "172.32.0.0",
                "192.0.1.0",
                "192.0.3.0",
                "192.167.255.255",
                "192.169.0.0",
                "198.17.255.255",
                "198.20.0.0",
                "203.0.112.255",
                "203.0.114.0",
                "223.255.255.255",
                "2001:200::1",
                "2001:db7::1",
                "2001:db9::1",
                "2003::1",
                "2606:4700::1111",
                "2a00:1450:4001::200e",
                "3fff:1000::1",
            ],
            true,
        );
    }

    proptest! {
        #[test]
        fn rule_m4_no_ipv6_form_around_an_ipv4_address_is_public(bits: u32, low: u64) {
            let v4 = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = v4.octets();
            let (high, lower) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let carriers = [
                v4.to_ipv6_mapped(),
                Ipv6Addr::from_bits(bits.into()),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, lower),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, lower),
                Ipv6Addr::from_bits(
                    Ipv6Addr::new(0x2002, high, lower, 0, 0, 0, 0, 0).to_bits() | u128::from(low),
                ),
                Ipv6Addr::from_bits(
                    Ipv6Addr::new(0x2001, 0, high, lower, 0, 0, 0, 0).to_bits() | u128::from(low),
                ),
                Ipv6Addr::new(0x2a00, 0x1450, 0, 0, 0, 0x5efe, high, lower),
            ];
            for carrier in carriers {
                prop_assert!(!is_public(carrier.into()), "{carrier}");
            }
        }

        #[test]
        fn what_the_standard_library_calls_local_is_not_public(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let local = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified();
            prop_assert!(!(local && is_public(v4.into())), "{v4}");
        }

        #[test]
        fn what_the_standard_library_calls_local_in_ipv6_is_not_public(bits: u128, first in 0xf000_u16..) {
            let mut segments = Ipv6Addr::from_bits(bits).segments();
            segments[0] = first;
            let v6 = Ipv6Addr::from(segments);
            prop_assert!(!is_public(v6.into()), "{v6}");
        }
    }
}
