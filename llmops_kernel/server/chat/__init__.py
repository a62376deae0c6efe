"""Chats in the Lab: a request a turn, and the growing answers on the live websocket."""
