// SPDX-License-Identifier: Apache-2.0
#include "with_config.hpp"

#include "../program.hpp"
#include "host.hpp"
#include "rules.hpp"

#include <verbena/services/config_file.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

namespace verbena::cli {

namespace {

constexpr std::chrono::seconds check_patience{30};

// The file as verbenad completes it; nothing, and told, if it is wrong.
std::optional<setting_values> effective_of(const std::string& file, const std::string& folder, report& out)
{
    const said checked =
        run_program({program_beside("verbenad"), "serve", file, "--check"}, {check_patience, folder});
    finding f{"configuration", verdict::bad, {}};
    if (checked.failed == ETIMEDOUT) {
        f.text = "verbenad does not come to an end with it";
        f.cure = "see whether a file of a module or the file itself lies on a disk that hangs";
    } else if (checked.failed != 0) {
        f.text = "no verbenad that could check it: " + std::generic_category().message(checked.failed);
        f.cure = "install verbenad beside this program, or in PATH";
    } else if (checked.status != 0) {
        f.text = checked.errors.empty() ? "verbenad ended with status " + std::to_string(checked.status)
                                        : checked.errors;
        f.text.erase(f.text.find_last_not_of('\n') + 1);
        f.cure = "correct that line; verbenad does not start with it";
    } else {
        try {
            return parse_config(checked.output, file);
        } catch (const config_error& e) {
            f.text = std::string("what verbenad makes of it can't be read: ") + e.what();
            f.cure = "use a verbenad of the same version as this program, " VERBENA_VERSION;
        }
    }
    out.add(f);
    return {};
}

} // namespace

bool look_at_config(const std::string& name, const std::string& peer, report& out)
{
    setting_values written;
    std::error_code failed;
    const std::string file = std::filesystem::absolute(name, failed).lexically_normal().string();
    try {
        written = load_config(name);
    } catch (const config_error& e) {
        out.add(
            {"configuration", verdict::bad, e.what(), "correct that line; verbenad does not start with it"});
        return false;
    }
    const std::optional<unit_facts> unit = unit_of(file);
    std::string folder = std::filesystem::current_path(failed).string();
    if (unit) {
        folder = unit->working_directory.empty() ? "/" : unit->working_directory;
        if (!unit->state_directory.empty())
            ::setenv("STATE_DIRECTORY", ("/var/lib/" + unit->state_directory).c_str(), 1);
    }
    const auto effective = effective_of(file, folder, out);
    if (!effective)
        return false;
    const process_facts process = look_at_process(file, unit);
    finding good{"configuration", verdict::good, name + ": verbenad takes it"};
    if (!process.daemons.empty())
        good.text += "; it runs with it, as process " + std::to_string(process.daemons.front());
    if (unit)
        good.text += "; " + unit->name + " serves it";
    out.add(good);
    const wanted_host wanted = what_is_wanted(*effective, written, name, folder);
    const looked seen = look_at_host(wanted, process, peer);
    for (const finding& f : judge(wanted, seen.host))
        out.add(f);
    return seen.is_late;
}

} // namespace verbena::cli
