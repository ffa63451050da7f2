// SPDX-License-Identifier: Apache-2.0
// What is said once NFS is served: exports, listeners, and what root types on a client.
#pragma once

#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/rpc/module.hpp>

#include <span>
#include <string>
#include <vector>

namespace verbena::nfs {

/// An export, for people.
struct exported_as {
    std::string pseudo;
    std::string source;                  ///< the directory, or the back end's name
    std::string options;                 ///< "rw,root_squash,sync"
    std::string clients;                 ///< who may connect
    std::vector<std::string> transports; ///< allowed ones; none: all
    std::string notes;                   ///< what the back end can and can't do here
    std::string warning;                 ///< what its user gives up
    client_list admitted;                ///< likewise, to ask
    bool secure = false;                 ///< ports below 1024 only
};

/// What is served to mount with.
struct mounted_by {
    std::string_view
        version_4;     ///< the highest, "4.1"; then mount lines are of it: it has locks, and needs no MOUNT
    bool mount = true; ///< the MOUNT protocol, which clients of version 3 ask first
};

/// Lines about each export and each listener. Mount lines that would be refused are left out; why, and what cures it, stands in
/// their place.
std::string start_text(std::span<const exported_as> exports, std::span<const listen_place> listeners,
                       mounted_by by);

} // namespace verbena::nfs
