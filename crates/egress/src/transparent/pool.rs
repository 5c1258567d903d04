//! Addresses that stand for names: each name that a room resolves gets one of its own.
//!
//! A connection to such an address is judged and dialled by the name, so the room never chooses the real address, and
//! two names on one server are never taken for each other. An address that was given to another name meanwhile leads
//! to that other name, and is judged as that.

use crate::host::Name;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// How many names have an address at once. The one that was not used for longest makes room for a new one.
const MOST_NAMES: usize = 16 * 1024;
/// 198.18.0.0/15, of which the first 256 addresses are kept for the two ends of the link.
const FIRST: u32 = u32::from_be_bytes([198, 18, 1, 0]);
const LAST: u32 = u32::from_be_bytes([198, 19, 255, 254]);

#[derive(Debug)]
pub(super) struct Pool {
    by_name: HashMap<Name, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, Given>,
    next: u32,
    /// Counts uses, as a clock.
    uses: u64,
    most: usize,
}

#[derive(Debug)]
struct Given {
    name: Name,
    used: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Self::of(MOST_NAMES)
    }
}

impl Pool {
    fn of(most: usize) -> Self {
        Self { by_name: HashMap::new(), by_address: HashMap::new(), next: FIRST, uses: 0, most }
    }

    /// The address that stands for a name.
    pub(super) fn address_of(&mut self, name: &Name) -> Ipv4Addr {
        self.uses += 1;
        if let Some(&address) = self.by_name.get(name) {
            if let Some(given) = self.by_address.get_mut(&address) {
                given.used = self.uses;
            }
            return address;
        }
        if self.by_name.len() >= self.most {
            self.forget_oldest();
        }
        let address = self.free_address();
        self.by_name.insert(name.clone(), address);
        self.by_address.insert(address, Given { name: name.clone(), used: self.uses });
        address
    }

    /// The name that an address stands for.
    pub(super) fn name_of(&mut self, address: Ipv4Addr) -> Option<Name> {
        self.uses += 1;
        let given = self.by_address.get_mut(&address)?;
        given.used = self.uses;
        Some(given.name.clone())
    }

    /// Goes round the whole range, so that an address rests as long as possible before it stands for another name.
    fn free_address(&mut self) -> Ipv4Addr {
        loop {
            let address = Ipv4Addr::from_bits(self.next);
            self.next = if self.next >= LAST { FIRST } else { self.next + 1 };
            if !self.by_address.contains_key(&address) {
                return address;
            }
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_address.iter().min_by_key(|(_, given)| given.used).map(|(address, _)| *address);
        if let Some(given) = oldest.and_then(|oldest| self.by_address.remove(&oldest)) {
            self.by_name.remove(&given.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    fn name(text: &str) -> Name {
        Host::parse(text).unwrap().name().unwrap().clone()
    }

    #[test]
    fn every_name_has_an_address_of_its_own_until_it_is_forgotten() {
        let mut pool = Pool::of(3);
        let [a, b, c] = ["a.test", "b.test", "c.test"].map(|text| pool.address_of(&name(text)));
        assert!(a != b && b != c && a != c);
        assert_eq!(pool.address_of(&name("a.test")), a);
        assert_eq!(pool.name_of(c), Some(name("c.test")));
        // b was not used for longest.
        let d = pool.address_of(&name("d.test"));
        assert_eq!(pool.name_of(b), None);
        assert_eq!(pool.name_of(a), Some(name("a.test")));
        assert!(![a, b, c].contains(&d), "an address rests before it is given again");
        for number in 0..200_000 {
            let address = pool.address_of(&name(&format!("n{number}.test")));
            assert!((FIRST..=LAST).contains(&address.to_bits()));
        }
        assert_eq!(pool.by_name.len(), 3);
        assert_eq!(pool.by_address.len(), 3);
    }
}
