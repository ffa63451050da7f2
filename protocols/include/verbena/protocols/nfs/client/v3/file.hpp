// SPDX-License-Identifier: Apache-2.0
// An open file of NFS version 3.
#pragma once

#include <verbena/protocols/nfs/client/v3/client.hpp>
#include <verbena/protocols/nfs/client/written_file.hpp>

#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// This holds for all its tasks, those of written_file among them. On cancel: the wait ends, ECANCELED or as the client says; what was
/// written by then is kept for commit(). Lifetime: the file outlives them, and the client the file. Shard: the client's.
class file final : public written_file {
public:
    /// `owner` outlives it. No call: version 3 has no open.
    file(client& owner, const node& n) : client_(owner), node_(n) {}
    const nfs::node& node() const noexcept { return node_; }

    /// As client::read(), and it knows how many bytes there are. None are the end. Completes when: the server has answered.
    /// Errors: EIO when the server gives none though the file goes on, or more than the size that it tells.
    task<result<read_result>> read(std::uint64_t offset, std::uint32_t count);

private:
    task<result<write_result>> send(std::uint64_t offset, rpc::payload data) override;
    task<result<v3::writeverf3>> sync() override;
    std::uint32_t most_at_once() const noexcept override { return client_.limits().write; }

    client& client_;
    nfs::node node_;
};

} // namespace verbena::nfs

#pragma GCC visibility pop
