// SPDX-License-Identifier: Apache-2.0
// verbenad: a service made of the modules that were built in, told by a command line or a file what to do.
#include "bundled_modules.hpp"
#include "command_line.hpp"
#include "config_file.hpp"

#include "../standard_output.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/services/service.hpp>

#include <cstdio>
#include <stdexcept>

int main(int argc, char** argv)
{
    using namespace verbena::daemon;
    try {
        verbena::service service("verbenad", VERBENA_VERSION);
        for (const verbena::module_descriptor* m : bundled_modules())
            service.modules().add(*m);
        parsed_command_line line = parse_command_line(argc, argv, service);
        const bool checks = line.wanted && line.wanted->kind == command_kind::check;
        if (line.wanted)
            service.configure(std::move(line.wanted->settings));
        if (checks)
            verbena::print("%s", to_toml(service.effective()).c_str());
        if (checks || !line.wanted) {
            if (const verbena::printed output = verbena::flush_standard_output(); output.lost)
                throw std::runtime_error(output.message());
            return checks ? 0 : line.exit_status;
        }
        return service.run();
    } catch (const verbena::config_error& e) {
        std::fprintf(stderr, "verbenad: %s\n", verbena::printable_lines(e.what()).c_str());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "verbenad: %s\n", verbena::printable_lines(e.what()).c_str());
        return 1;
    }
}
