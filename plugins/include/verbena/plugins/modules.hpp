// SPDX-License-Identifier: Apache-2.0
// The modules that come with verbena, for programs that build them in: module_table::add(modules::posixfs).
//
// Those that were configured as loadable (Meson's option `modules`) are files of their own and are not here.
#pragma once

#include <verbena/core/module/module.hpp>

#pragma GCC visibility push(default)

namespace verbena::modules {

extern const module_descriptor block;   ///< the RNBD protocol, over RTRS, with its devices
extern const module_descriptor delay;   ///< a filter: operations take longer
extern const module_descriptor error;   ///< a filter: operations fail
extern const module_descriptor fileblk; ///< a block back end: a file or a block device of this host
extern const module_descriptor limit;   ///< a filter: so many operations and bytes a second
extern const module_descriptor memfs;   ///< a back end: files in memory
extern const module_descriptor mount;   ///< the MOUNT protocol, version 3, beside nfs
extern const module_descriptor nfs;     ///< the NFS protocol, version 3, with its exports
extern const module_descriptor nullblk; ///< a block back end: takes everything, keeps nothing
extern const module_descriptor posixfs; ///< a back end: a folder of this host
extern const module_descriptor ramblk;  ///< a block back end: blocks in memory

} // namespace verbena::modules

#pragma GCC visibility pop
