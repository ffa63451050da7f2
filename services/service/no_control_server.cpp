// SPDX-License-Identifier: Apache-2.0
// In place of control_server.cpp where the build has no Asio.
#include "control_server.hpp"

#include <stdexcept>

namespace verbena::services {

struct control_server::core {
    std::string path;
};

bool has_control_server() noexcept { return false; }

control_server::control_server(runtime&, control_table, control_options)
{
    throw std::logic_error("this build has no control socket");
}
control_server::~control_server() = default;
void control_server::close() noexcept {}
void control_server::finish() noexcept {}
std::vector<std::string> control_server::works() const { return {}; }
const std::string& control_server::path() const noexcept { return core_->path; }

} // namespace verbena::services
