// SPDX-License-Identifier: Apache-2.0
// What a server keeps of a client: a session with its chunks and its paths.
#pragma once

#include "server_chunk.hpp"

#include <verbena/protocols/rtrs/server.hpp>

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/task.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::rtrs {

class path_part;
class server_connection;
class server_path;
struct server_shared;

/// Its home is one shard, where it is used but for what says otherwise; its paths' connections stand on several.
class server_session {
public:
    /// `charged`: to the peer whose path is the first.
    server_session(server_shared& shared, const uuid& id, peer_charge charged);
    ~server_session();
    /// Takes its place among those of the group, and gives it back at its end. False: there is none.
    bool take_place() noexcept;

    /// The first path said the name, and has so many connections. Yields when chunks and handler are there.
    task<result<void>> begin(std::string name, std::string_view peer_address, std::uint16_t connections);

    server_shared& shared() const noexcept { return shared_; }
    const uuid& id() const noexcept { return id_; }
    const std::string& name() const noexcept { return name_.text(); }
    bool begun() const noexcept { return handler_ != nullptr; }
    session_handler& handler() const noexcept { return *handler_; }
    /// Do not change once it has begun().
    std::span<server_chunk> chunks() const noexcept { return {chunks_.get(), chunk_count_}; }
    const std::vector<lease>& memory() const noexcept { return memory_; }
    /// All memory of chunks, piece by piece.
    std::span<std::byte> memory(std::size_t piece) const noexcept
    {
        return memory_[piece].bytes().first(bytes_of_piece_);
    }
    std::map<uuid, std::unique_ptr<server_path>>& paths() noexcept { return paths_; }
    /// A path has come or has ended.
    void paths_changed() noexcept;

    // On the shard of the connection. The lock is taken only where copies of a request wait.

    /// A request came into an idle chunk, which is its path's from now on; or it waits, and starts when its turn has come. Throws
    /// std::bad_alloc.
    chunk_turn take_chunk(std::uint32_t chunk, server_connection& by, const io_header& header,
                          std::uint32_t data_size);
    /// The copy of `path` is over. False: others may wait, so that next_copy() follows.
    bool leave_chunk(std::uint32_t chunk, const path_part& path) noexcept;
    void next_copy(std::uint32_t chunk) noexcept;
    void give_chunk(std::uint32_t chunk, const path_part& path) noexcept
    {
        if (!leave_chunk(chunk, path))
            next_copy(chunk);
    }
    /// Forgets the copies that wait and came by `from`.
    void forget(const server_connection& from) noexcept;

private:
    task<result<void>> claim(std::string name, std::string_view peer_address, std::uint16_t connections);
    task<result<void>> allocate();

    server_shared& shared_;
    const uuid id_;
    const peer_charge charged_;
    bool placed_ = false;    // among the group's sessions
    std::string asked_name_; // what the handler was told of
    session_name name_;
    peer_charge memory_charged_; // for the chunks; back before who waits for the name hears of it
    std::string peer_address_;
    std::vector<lease> memory_;
    std::size_t bytes_of_piece_ = 0;
    std::unique_ptr<server_chunk[]> chunks_;
    std::size_t chunk_count_ = 0;
    std::mutex copies_; // of server_chunk::waiting
    std::unique_ptr<session_handler> handler_;
    bool beginning_ = false;
    event begun_; // or not
    std::map<uuid, std::unique_ptr<server_path>> paths_;
};

} // namespace verbena::rtrs
