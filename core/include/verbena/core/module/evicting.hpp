// SPDX-License-Identifier: Apache-2.0
// What a module does when an operator ends one of its clients: `verbena admin evict`. docs/internals/control.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// A client that can be ended. Texts are as the module's tables show them.
struct evictable {
    std::string kind;              ///< "NFS 4.2", "block session"
    std::string id;                ///< by which evict is told of it
    std::string name;              ///< the client's own for itself: any octets
    std::string address;           ///< of the peer, without port
    std::uint64_t connections = 0; ///< those whose rpc::peer::client is this; 0: none
    std::vector<std::string> kept_out_by =
        {}; ///< addresses by which it is kept out; none: its module knows it by its name
};

/// What became of it.
struct evicted {
    std::optional<std::uint64_t> opens, locks, delegations, layouts, sessions; ///< that it had
    std::string remains; ///< what has not ended, and what that may still do; empty: nothing
};

/// A module that has clients of its own implements this too. It is called on a thread of its own, one call at a time, and may wait for
/// shards. Connections by which calls come are the service's, which ends them before end(), and once more behind it.
class evicting {
public:
    /// Those whose id, name or address `who` is, `most` at most; some of all where it is empty.
    virtual std::vector<evictable> find_clients(const std::string& who, std::size_t most) = 0;
    /// Keeps it out for so long, by its name; 0 lets it in again. False: as many are kept out as may be.
    virtual bool keep_out(const std::string& name, std::chrono::seconds time) = 0;
    /// Ends it, with all that it has. Comes back when nothing that it sent does anything any more, or says what remains after `patience`.
    virtual evicted end(const evictable& client, std::chrono::milliseconds patience) = 0;

protected:
    ~evicting() = default;
};

} // namespace verbena

#pragma GCC visibility pop
