// SPDX-License-Identifier: Apache-2.0
// One folder on a server: random operations in it one after the other, and the comparison with what was acknowledged.
#pragma once

#include "model.hpp"

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace verbena::ledger {

/// Acknowledged operations by kind.
using counters = std::array<std::uint64_t, kinds>;

/// Shard-local. Lives longer than a connection: each call gets the client of its time.
class folder {
public:
    folder(std::string name, std::uint64_t seed, const sizes& s)
        : name_(std::move(name)), random_(seed), model_(s)
    {
    }
    const std::string& name() const noexcept { return name_; }

    /// Makes the folder in `parent`. Acknowledged like all that follows.
    task<result<void>> make(nfs::client& c, nfs::v3::nfs_fh3 parent);
    /// Works until `stop`, the end of the connection or an error of the server, which goes to `failure`.
    task<void> work(nfs::client& c, const bool& stop, counters& done);
    /// Adds to `differences` what is there otherwise than it was acknowledged. The operation that had no answer may
    /// have happened or not.
    task<void> check(nfs::client& c, nfs::v3::nfs_fh3 parent, std::vector<std::string>& differences);

    const std::string& failure() const noexcept { return failure_; }

private:
    task<result<void>> send(nfs::client& c, const operation& o);
    task<result<void>> send_writes(nfs::client& c, const operation& o);
    task<result<void>> read(nfs::client& c, const operation& o);
    task<result<void>> remember(operation o, result<nfs::node> made);
    task<void> compare(nfs::client& c, const nfs::v3::nfs_fh3& top, const model& wanted,
                       std::vector<std::string>& differences);
    task<void> compare_object(nfs::client& c, const nfs::v3::nfs_fh3& parent, const std::string& path,
                              const nfs::node& there, const model& wanted,
                              std::vector<std::string>& differences);
    task<std::string> compare_data(nfs::client& c, const object& wanted, const nfs::node& there);
    /// What is different in [at, end), or nothing.
    task<result<std::string>> compare_range(nfs::client& c, const object& wanted,
                                            const nfs::v3::nfs_fh3& handle, std::uint64_t at,
                                            std::uint64_t end);

    std::string name_;
    numbers random_;
    model model_;
    bool made_ = false;
    std::vector<operation> pending_; // at most one
    std::string failure_;
};

} // namespace verbena::ledger
