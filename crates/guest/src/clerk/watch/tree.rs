//! The directories that are watched, by the numbers that the kernel knows them by.

use std::collections::HashMap;
use std::ffi::CString;

#[derive(Default)]
pub(super) struct Tree {
    top: Option<i32>,
    /// What each is called in which other.
    places: HashMap<i32, (i32, CString)>,
    children: HashMap<(i32, CString), i32>,
}

impl Tree {
    pub(super) fn set_top(&mut self, watch: i32) {
        self.top = Some(watch);
    }

    pub(super) fn is_top(&self, watch: i32) -> bool {
        self.top == Some(watch)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn child(&self, parent: i32, name: CString) -> Option<i32> {
        self.children.get(&(parent, name)).copied()
    }

    /// Puts a directory at a place, whether it is new or was somewhere else.
    pub(super) fn put(&mut self, watch: i32, parent: i32, name: CString) {
        self.forget(watch);
        self.children.insert((parent, name.clone()), watch);
        self.places.insert(watch, (parent, name));
    }

    pub(super) fn forget(&mut self, watch: i32) {
        if let Some(place) = self.places.remove(&watch)
            // Another directory may have taken its place.
            && self.children.get(&place) == Some(&watch)
        {
            self.children.remove(&place);
        }
    }

    /// Forgets a directory and all below it, and says which they were.
    pub(super) fn take(&mut self, watch: i32) -> Vec<i32> {
        let below = |below: &i32| *below == watch || self.ways_up(*below).any(|(parent, _)| parent == watch);
        let mut taken: Vec<i32> = self.places.keys().copied().filter(below).collect();
        for taken in &taken {
            self.forget(*taken);
        }
        if self.is_top(watch) {
            self.top = None;
            taken.push(watch);
        }
        taken
    }

    /// From the top; nothing if it does not lead there.
    pub(super) fn path(&self, watch: i32) -> Option<Vec<u8>> {
        if self.is_top(watch) {
            return Some(Vec::new());
        }
        let (parents, mut names): (Vec<i32>, Vec<&[u8]>) =
            self.ways_up(watch).map(|(parent, name)| (parent, name.to_bytes())).unzip();
        names.reverse();
        parents.last().filter(|last| self.is_top(**last)).map(|_| names.join(&b'/'))
    }

    /// Its parent and its name there, then the parent's, and so on.
    fn ways_up(&self, watch: i32) -> impl Iterator<Item = (i32, &CString)> {
        let step = |at: &i32| self.places.get(at).map(|(parent, name)| (*parent, name));
        std::iter::successors(step(&watch), move |(parent, _)| step(parent)).take(self.places.len())
    }
}
