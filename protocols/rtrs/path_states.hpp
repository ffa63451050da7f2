// SPDX-License-Identifier: Apache-2.0
// What the two ends of a path are doing, and what may follow.
#pragma once

#include <verbena/protocols/rtrs/path_end.hpp>

#include <verbena/core/named_state.hpp>

#include <array>
#include <cstdint>

namespace verbena::rtrs {

/// to_string(), as a literal.
const char* text_of(path_end e) noexcept;

/// Of a client's path. Its lives follow each other until it is closed; whether that was asked for is no state of a life.
///
///   waiting -> setting_up -> connected -> lost -> waiting -> ... -> closed
///                        \-> failed ------------/
enum class client_path_state : std::uint8_t {
    waiting,    ///< for its next life, or its first one: it has no connection
    setting_up, ///< connections are made, and the server says where the chunks are
    connected,  ///< takes requests
    failed,     ///< could not be set up: its connections are taken down
    lost,       ///< was connected and is no more: its connections are taken down
    closed,     ///< has no life any more
};

inline constexpr std::array client_path_rules = {
    state_rule{"waiting", followed_by(client_path_state::setting_up, client_path_state::closed)},
    state_rule{"setting up", followed_by(client_path_state::connected, client_path_state::failed)},
    state_rule{"connected", followed_by(client_path_state::lost)},
    state_rule{"failed", followed_by(client_path_state::waiting)},
    state_rule{"lost", followed_by(client_path_state::waiting)},
    state_rule{"closed", followed_by()},
};

/// Of a path at its server.
///
///   connecting -> informing -> connected -> draining -> closing
///   each of them ---------------------------------------> closing
enum class server_path_state : std::uint8_t {
    connecting, ///< its connections come
    informing,  ///< the client has said who it is, and is to hear where the chunks are
    connected,  ///< takes requests
    draining,   ///< takes no more of them, and ends when those under way have been answered
    closing,    ///< ends
};

inline constexpr std::array server_path_rules = {
    state_rule{"connecting", followed_by(server_path_state::informing, server_path_state::closing)},
    state_rule{"informing", followed_by(server_path_state::connected, server_path_state::closing)},
    state_rule{"connected", followed_by(server_path_state::draining, server_path_state::closing)},
    state_rule{"draining", followed_by(server_path_state::closing)},
    state_rule{"closing", followed_by()},
};

} // namespace verbena::rtrs
