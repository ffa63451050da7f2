// SPDX-License-Identifier: Apache-2.0
// The Unix socket of the control plane: who may have its path.
#pragma once

#include <verbena/core/unique_fd.hpp>

#include <optional>
#include <string>

namespace verbena::services {

/// A listening, non-blocking Unix socket with mode 0600 at a path of one living process. The file goes with this object.
class control_socket {
public:
    /// Replaces what a dead process left there. Throws config_error with the cure: the path is a living process's, no socket, too
    /// long, or its folder is not there or not the user's.
    explicit control_socket(std::string path);
    ~control_socket();
    control_socket(const control_socket&) = delete;

    const std::string& path() const noexcept { return path_; }
    int listener() const noexcept { return listener_.get(); }

private:
    std::string path_;
    unique_fd lock_; // PATH.lock, locked for as long as the process lives
    unique_fd listener_;
};

/// Whether a path is short enough for a socket.
bool fits_a_socket(const std::string& path) noexcept;
/// "control" in the folder that systemd made for this unit (RuntimeDirectory=); nothing without one.
std::optional<std::string> runtime_control_path();

} // namespace verbena::services
